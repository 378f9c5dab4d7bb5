/* The algorithms of Thrust, over the iterators of noyau_thrust.h. */
#ifndef NOYAU_THRUST_ALGORITHMS_H
#define NOYAU_THRUST_ALGORITHMS_H

namespace thrust {
/* The policy of an algorithm, and the line that calls it. */
struct noyau_place {
    noyau_policy policy;
    const void *pc;

    /* Calls f(i) for each i below n: on a device each in a thread of its own, with a copy of the function. */
    template <class F> NOYAU_UNSEEN void each(ptrdiff_t n, F f) const {
        if (!policy.is_on_device || noyau_in_grid()) {
            for (ptrdiff_t i = 0; i < n; ++i) f(i);
            return;
        }
        const unsigned threads = n < 256 ? (unsigned)n : 256;
        if (n > 0) launch(dim3((unsigned)((n + 255) / 256)), dim3(threads), [=]() NOYAU_UNSEEN {
            F own = f;
            const ptrdiff_t i = (ptrdiff_t)blockIdx.x * threads + threadIdx.x;
            if (i < n) own(i);
        });
    }
    /* Calls f() in one thread of a device. */
    template <class F> NOYAU_UNSEEN void once(F f) const {
        if (!policy.is_on_device || noyau_in_grid()) f();
        else launch(dim3(1), dim3(1), f);
    }

  private:
    template <class F> NOYAU_UNSEEN void launch(dim3 grid, dim3 block, F f) const {
        noyau_grid(grid, block, 0, policy.stream).at(pc, f, std::tuple<>());
        cudaStreamSynchronize(policy.stream);
    }
};

/* Whether ranges are processed on a device: some lie there, or all of them nowhere. */
template <class... I> constexpr bool noyau_is_on_device() {
    const bool some = ((noyau_side_of<I>::value == NOYAU_OF_DEVICE) || ...), none = ((noyau_side_of<I>::value == NOYAU_OF_HOST) || ...);
    return some || !none;
}

namespace noyau {
using place = noyau_place;
template <class I> using value_of = std::decay_t<decltype(noyau_load(std::declval<const I &>(), 0, nullptr))>;
struct less {
    template <class A, class B> NOYAU_IN bool operator()(const A &a, const B &b) const { return a < b; }
};
struct equal_to {
    template <class A, class B> NOYAU_IN bool operator()(const A &a, const B &b) const { return a == b; }
};
struct plus {
    template <class A, class B> NOYAU_IN auto operator()(const A &a, const B &b) const { return a + b; }
};
struct multiplies {
    template <class A, class B> NOYAU_IN auto operator()(const A &a, const B &b) const { return a * b; }
};
struct minus {
    template <class A, class B> NOYAU_IN auto operator()(const A &a, const B &b) const { return a - b; }
};
struct itself {
    template <class A> NOYAU_IN A operator()(const A &a) const { return a; }
};

/* A range as values, and values as a range. */
template <class I> NOYAU_UNSEEN std::vector<value_of<I>> values(const place &on, I first, I last) {
    std::vector<value_of<I>> all;
    const ptrdiff_t n = last - first;
    all.reserve((size_t)n);
    for (ptrdiff_t i = 0; i < n; ++i) all.push_back(noyau_load(first, i, on.pc));
    return all;
}
template <class C, class I> NOYAU_UNSEEN void put(const place &on, const C &all, I out) {
    ptrdiff_t i = 0;
    for (const auto &each : all) noyau_store(out, i++, each, on.pc);
}

/* Element by element. */
template <class I, class F> NOYAU_UNSEEN I for_each(const place &on, I first, I last, F f) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN { f(noyau_element(first, i, pc)); });
    return last;
}
template <class I, class N, class F> NOYAU_UNSEEN I for_each_n(const place &on, I first, N n, F f) { return for_each(on, first, first + n, f); }
template <class I, class O, class F> NOYAU_UNSEEN O transform(const place &on, I first, I last, O out, F f) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN { noyau_store(out, i, f(noyau_load(first, i, pc)), pc); });
    return out + (last - first);
}
template <class I, class J, class O, class F> NOYAU_UNSEEN O transform(const place &on, I first, I last, J other, O out, F f) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN {
        noyau_store(out, i, f(noyau_load(first, i, pc), noyau_load(other, i, pc)), pc); });
    return out + (last - first);
}
template <class I, class S, class O, class F, class P> NOYAU_UNSEEN O transform_if(const place &on, I first, I last, S stencil, O out, F f, P keeps) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN {
        if (keeps(noyau_load(stencil, i, pc))) noyau_store(out, i, f(noyau_load(first, i, pc)), pc); });
    return out + (last - first);
}
template <class I, class O, class F, class P> NOYAU_UNSEEN O transform_if(const place &on, I first, I last, O out, F f, P keeps) {
    return transform_if(on, first, last, first, out, f, keeps);
}
template <class O, class F> NOYAU_UNSEEN void tabulate(const place &on, O first, O last, F f) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN { noyau_store(first, i, f(i), pc); });
}
template <class O, class T> NOYAU_UNSEEN void fill(const place &on, O first, O last, T value) {
    tabulate(on, first, last, [=](ptrdiff_t) NOYAU_UNSEEN { return value; });
}
template <class O, class N, class T> NOYAU_UNSEEN O fill_n(const place &on, O first, N n, T value) { return fill(on, first, first + n, value), first + n; }
template <class O, class T, class S> NOYAU_UNSEEN void sequence(const place &on, O first, O last, T start, S step) {
    tabulate(on, first, last, [=](ptrdiff_t i) NOYAU_UNSEEN { return start + (T)i * step; });
}
template <class O, class T> NOYAU_UNSEEN void sequence(const place &on, O first, O last, T start) { sequence(on, first, last, start, T(1)); }
template <class O> NOYAU_UNSEEN void sequence(const place &on, O first, O last) { sequence(on, first, last, value_of<O>(0)); }
template <class O, class F> NOYAU_UNSEEN void generate(const place &on, O first, O last, F f) {
    if (!on.policy.is_on_device) {
        for (ptrdiff_t i = 0; i < last - first; ++i) noyau_store(first, i, f(), on.pc);
        return;
    }
    tabulate(on, first, last, [=](ptrdiff_t) mutable NOYAU_UNSEEN { return f(); });
}
template <class O, class N, class F> NOYAU_UNSEEN O generate_n(const place &on, O first, N n, F f) { return generate(on, first, first + n, f), first + n; }
template <class I, class P, class T> NOYAU_UNSEEN void replace_if(const place &on, I first, I last, P is, T by) {
    transform_if(on, first, last, first, [=](const auto &) NOYAU_UNSEEN { return by; }, is);
}
template <class I, class T, class U> NOYAU_UNSEEN void replace(const place &on, I first, I last, T old, U by) {
    replace_if(on, first, last, [=](const auto &value) NOYAU_UNSEEN { return value == old; }, by);
}
template <class M, class I, class O> NOYAU_UNSEEN O gather(const place &on, M first, M last, I in, O out) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) NOYAU_UNSEEN { noyau_store(out, i, noyau_load(in, noyau_load(first, i, pc), pc), pc); });
    return out + (last - first);
}
template <class I, class M, class O> NOYAU_UNSEEN void scatter(const place &on, I first, I last, M map, O out) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) NOYAU_UNSEEN { noyau_store(out, noyau_load(map, i, pc), noyau_load(first, i, pc), pc); });
}
template <class I, class M, class S, class O, class P>
NOYAU_UNSEEN void scatter_if(const place &on, I first, I last, M map, S stencil, O out, P keeps) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) mutable NOYAU_UNSEEN {
        if (keeps(noyau_load(stencil, i, pc))) noyau_store(out, noyau_load(map, i, pc), noyau_load(first, i, pc), pc); });
}
template <class I, class M, class S, class O> NOYAU_UNSEEN void scatter_if(const place &on, I first, I last, M map, S stencil, O out) {
    scatter_if(on, first, last, map, stencil, out, itself());
}
template <class I, class J> NOYAU_UNSEEN J swap_ranges(const place &on, I first, I last, J other) {
    const void *pc = on.pc;
    on.each(last - first, [=](ptrdiff_t i) NOYAU_UNSEEN {
        const auto was = noyau_load(first, i, pc);
        noyau_store(first, i, noyau_load(other, i, pc), pc), noyau_store(other, i, was, pc); });
    return other + (last - first);
}

/* Copies, also between a device and the host. */
template <class I> struct is_in_a_row : std::is_pointer<I> {};
template <class T> struct is_in_a_row<device_ptr<T>> : std::true_type {};
template <class T> NOYAU_IN T *bare(T *of) { return of; }
template <class T> NOYAU_IN T *bare(const device_ptr<T> &of) { return of.at; }
template <class I, class O> NOYAU_UNSEEN O copy(const place &on, I first, I last, O out) {
    constexpr bool goes_home = noyau_is_on_device<I>() && !noyau_is_on_device<O>();
    if constexpr (is_in_a_row<I>::value && is_in_a_row<O>::value) {
        if constexpr (std::is_same<value_of<I>, value_of<O>>::value) {
            if (!noyau_in_grid()) noyau_wait_all();
            noyau_device_copy((void *)bare(out), bare(first), (int64_t)((last - first) * sizeof(value_of<I>)), on.pc);
            return out + (last - first);
        }
    }
    if constexpr (goes_home) { /* perhaps to a stream of the host's */
        std::vector<value_of<I>> all;
        on.once([&all, on, first, last]() NOYAU_UNSEEN { all = values(on, first, last); });
        return std::copy(all.begin(), all.end(), out);
    } else if constexpr (noyau_is_on_device<O>() && !noyau_is_on_device<I>() && !std::is_base_of<noyau_walk<I>, I>::value) {
        const noyau_values<value_of<O>> all(first, last); /* of the host */
        const auto *from = (const value_of<O> *)all.data();
        return copy(on, from, from + all.size(), out);
    } else return transform(on, first, last, out, itself());
}
template <class I, class N, class O> NOYAU_UNSEEN O copy_n(const place &on, I first, N n, O out) { return copy(on, first, first + n, out); }

/* In order. */
template <class I, class T, class F> NOYAU_UNSEEN T reduce(const place &on, I first, I last, T start, F join) {
    T all = start, *into = &all;
    on.once([=]() mutable NOYAU_UNSEEN {
        for (ptrdiff_t i = 0; i < last - first; ++i) *into = join(*into, noyau_load(first, i, on.pc)); });
    return all;
}
template <class I, class T> NOYAU_UNSEEN T reduce(const place &on, I first, I last, T start) { return reduce(on, first, last, start, plus()); }
template <class I> NOYAU_UNSEEN auto reduce(const place &on, I first, I last) { return reduce(on, first, last, value_of<I>()); }
template <class I, class F, class T, class G> NOYAU_UNSEEN T transform_reduce(const place &on, I first, I last, F f, T start, G join) {
    return reduce(on, make_transform_iterator(first, f), make_transform_iterator(last, f), start, join);
}
template <class I, class J, class T, class G, class F>
NOYAU_UNSEEN T inner_product(const place &on, I first, I last, J other, T start, G join, F f) {
    T all = start, *into = &all;
    on.once([=]() mutable NOYAU_UNSEEN {
        for (ptrdiff_t i = 0; i < last - first; ++i)
            *into = join(*into, f(noyau_load(first, i, on.pc), noyau_load(other, i, on.pc))); });
    return all;
}
template <class I, class J, class T> NOYAU_UNSEEN T inner_product(const place &on, I first, I last, J other, T start) {
    return inner_product(on, first, last, other, start, plus(), multiplies());
}
template <class I, class P> NOYAU_UNSEEN ptrdiff_t count_if(const place &on, I first, I last, P is) {
    return transform_reduce(on, first, last, [=](const auto &value) NOYAU_UNSEEN { P own = is; return (ptrdiff_t)(own(value) ? 1 : 0); }, (ptrdiff_t)0, plus());
}
template <class I, class T> NOYAU_UNSEEN ptrdiff_t count(const place &on, I first, I last, T wanted) {
    return count_if(on, first, last, [=](const auto &value) NOYAU_UNSEEN { return value == wanted; });
}
template <class I, class P> NOYAU_UNSEEN I find_if(const place &on, I first, I last, P is) {
    ptrdiff_t found = last - first, *into = &found;
    on.once([=]() mutable NOYAU_UNSEEN {
        for (ptrdiff_t i = last - first; i-- > 0;)
            if (is(noyau_load(first, i, on.pc))) *into = i; });
    return first + found;
}
template <class I, class P> NOYAU_UNSEEN I find_if_not(const place &on, I first, I last, P is) { return find_if(on, first, last, not_fn(is)); }
template <class I, class T> NOYAU_UNSEEN I find(const place &on, I first, I last, T wanted) {
    return find_if(on, first, last, [=](const auto &value) NOYAU_UNSEEN { return value == wanted; });
}
template <class I, class P> NOYAU_UNSEEN bool all_of(const place &on, I first, I last, P is) { return count_if(on, first, last, is) == last - first; }
template <class I, class P> NOYAU_UNSEEN bool any_of(const place &on, I first, I last, P is) { return count_if(on, first, last, is) > 0; }
template <class I, class P> NOYAU_UNSEEN bool none_of(const place &on, I first, I last, P is) { return count_if(on, first, last, is) == 0; }
template <class I, class J, class P> NOYAU_UNSEEN bool equal(const place &on, I first, I last, J other, P is) {
    return inner_product(on, first, last, other, true, [](bool a, bool b) NOYAU_UNSEEN { return a && b; }, is);
}
template <class I, class J> NOYAU_UNSEEN bool equal(const place &on, I first, I last, J other) { return equal(on, first, last, other, equal_to()); }
template <class I, class F> NOYAU_UNSEEN pair<I, I> minmax_element(const place &on, I first, I last, F before) {
    ptrdiff_t ends[2] = {0, 0}, *into = ends;
    on.once([=]() mutable NOYAU_UNSEEN {
        for (ptrdiff_t i = 1; i < last - first; ++i) {
            const auto value = noyau_load(first, i, on.pc);
            if (before(value, noyau_load(first, into[0], on.pc))) into[0] = i;
            if (before(noyau_load(first, into[1], on.pc), value)) into[1] = i;
        } });
    return {first + ends[0], first + ends[1]};
}
template <class I> NOYAU_UNSEEN pair<I, I> minmax_element(const place &on, I first, I last) { return minmax_element(on, first, last, less()); }
template <class I, class... F> NOYAU_UNSEEN I min_element(const place &on, I first, I last, F... before) { return minmax_element(on, first, last, before...).first; }
template <class I, class... F> NOYAU_UNSEEN I max_element(const place &on, I first, I last, F... before) { return minmax_element(on, first, last, before...).second; }
template <class I, class F> NOYAU_UNSEEN bool is_sorted(const place &on, I first, I last, F before) {
    bool is = true, *into = &is;
    on.once([=]() mutable NOYAU_UNSEEN {
        for (ptrdiff_t i = 1; i < last - first; ++i)
            if (before(noyau_load(first, i, on.pc), noyau_load(first, i - 1, on.pc))) *into = false; });
    return is;
}
template <class I> NOYAU_UNSEEN bool is_sorted(const place &on, I first, I last) { return is_sorted(on, first, last, less()); }

/* Scans: `same` says whether a key continues, `start` is the value before the first element of a key, if exclusive. */
template <class K, class I, class O, class T, class E, class F>
NOYAU_UNSEEN O scan(const place &on, K keys, I first, I last, O out, const T *start, E same, F join) {
    const bool is_exclusive = start != nullptr;
    const T begin = is_exclusive ? *start : T();
    on.once([=]() mutable NOYAU_UNSEEN {
        T all = begin;
        for (ptrdiff_t i = 0; i < last - first; ++i) {
            const T value = noyau_load(first, i, on.pc);
            const bool goes_on = i && same(noyau_load(keys, i - 1, on.pc), noyau_load(keys, i, on.pc));
            if (is_exclusive) {
                if (!goes_on) all = begin;
                noyau_store(out, i, all, on.pc), all = join(all, value);
            } else {
                all = goes_on ? (T)join(all, value) : value;
                noyau_store(out, i, all, on.pc);
            }
        } });
    return out + (last - first);
}
template <class I, class O, class F> NOYAU_UNSEEN O inclusive_scan(const place &on, I first, I last, O out, F join) {
    return scan(on, constant_iterator<int>(), first, last, out, (const value_of<I> *)nullptr, equal_to(), join);
}
template <class I, class O> NOYAU_UNSEEN O inclusive_scan(const place &on, I first, I last, O out) { return inclusive_scan(on, first, last, out, plus()); }
template <class I, class O, class T, class F> NOYAU_UNSEEN O exclusive_scan(const place &on, I first, I last, O out, T start, F join) {
    return scan(on, constant_iterator<int>(), first, last, out, &start, equal_to(), join);
}
template <class I, class O, class T> NOYAU_UNSEEN O exclusive_scan(const place &on, I first, I last, O out, T start) { return exclusive_scan(on, first, last, out, start, plus()); }
template <class I, class O> NOYAU_UNSEEN O exclusive_scan(const place &on, I first, I last, O out) { return exclusive_scan(on, first, last, out, value_of<I>()); }
template <class I, class O, class F, class G> NOYAU_UNSEEN O transform_inclusive_scan(const place &on, I first, I last, O out, F f, G join) {
    return inclusive_scan(on, make_transform_iterator(first, f), make_transform_iterator(last, f), out, join);
}
template <class I, class O, class F, class T, class G>
NOYAU_UNSEEN O transform_exclusive_scan(const place &on, I first, I last, O out, F f, T start, G join) {
    return exclusive_scan(on, make_transform_iterator(first, f), make_transform_iterator(last, f), out, start, join);
}
template <class K, class I, class O, class E, class F> NOYAU_UNSEEN O inclusive_scan_by_key(const place &on, K keys, K end, I first, O out, E same, F join) {
    return scan(on, keys, first, first + (end - keys), out, (const value_of<I> *)nullptr, same, join);
}
template <class K, class I, class O, class E> NOYAU_UNSEEN O inclusive_scan_by_key(const place &on, K keys, K end, I first, O out, E same) {
    return inclusive_scan_by_key(on, keys, end, first, out, same, plus());
}
template <class K, class I, class O> NOYAU_UNSEEN O inclusive_scan_by_key(const place &on, K keys, K end, I first, O out) {
    return inclusive_scan_by_key(on, keys, end, first, out, equal_to());
}
template <class K, class I, class O, class T> NOYAU_UNSEEN O exclusive_scan_by_key(const place &on, K keys, K end, I first, O out, T start) {
    return scan(on, keys, first, first + (end - keys), out, &start, equal_to(), plus());
}
template <class K, class I, class O> NOYAU_UNSEEN O exclusive_scan_by_key(const place &on, K keys, K end, I first, O out) {
    return exclusive_scan_by_key(on, keys, end, first, out, value_of<I>());
}
template <class I, class O, class F> NOYAU_UNSEEN O adjacent_difference(const place &on, I first, I last, O out, F f) {
    on.once([=]() mutable NOYAU_UNSEEN {
        const auto all = values(on, first, last);
        for (size_t i = 0; i < all.size(); ++i) noyau_store(out, i, i ? f(all[i], all[i - 1]) : all[i], on.pc); });
    return out + (last - first);
}
template <class I, class O> NOYAU_UNSEEN O adjacent_difference(const place &on, I first, I last, O out) { return adjacent_difference(on, first, last, out, minus()); }
template <class K, class I, class L, class O, class E, class F>
NOYAU_UNSEEN pair<L, O> reduce_by_key(const place &on, K keys, K end, I in, L keys_out, O out, E same, F join) {
    ptrdiff_t many = 0, *into = &many;
    on.once([=]() mutable NOYAU_UNSEEN {
        std::vector<value_of<K>> heads;
        std::vector<value_of<I>> sums;
        for (ptrdiff_t i = 0; i < end - keys; ++i) {
            const auto key = noyau_load(keys, i, on.pc);
            const auto value = noyau_load(in, i, on.pc);
            if (i && same(heads.back(), key)) sums.back() = join(sums.back(), value);
            else heads.push_back(key), sums.push_back(value);
        }
        put(on, heads, keys_out), put(on, sums, out), *into = (ptrdiff_t)heads.size(); });
    return {keys_out + many, out + many};
}
template <class K, class I, class L, class O, class E> NOYAU_UNSEEN pair<L, O> reduce_by_key(const place &on, K keys, K end, I in, L keys_out, O out, E same) {
    return reduce_by_key(on, keys, end, in, keys_out, out, same, plus());
}
template <class K, class I, class L, class O> NOYAU_UNSEEN pair<L, O> reduce_by_key(const place &on, K keys, K end, I in, L keys_out, O out) {
    return reduce_by_key(on, keys, end, in, keys_out, out, equal_to());
}

/* Removal of elements. */
template <class I, class S, class O, class P> NOYAU_UNSEEN O copy_if(const place &on, I first, I last, S stencil, O out, P keeps) {
    ptrdiff_t many = 0, *into = &many;
    on.once([=]() mutable NOYAU_UNSEEN {
        std::vector<value_of<I>> kept;
        for (ptrdiff_t i = 0; i < last - first; ++i)
            if (keeps(noyau_load(stencil, i, on.pc))) kept.push_back(noyau_load(first, i, on.pc));
        put(on, kept, out), *into = (ptrdiff_t)kept.size(); });
    return out + many;
}
template <class I, class O, class P> NOYAU_UNSEEN O copy_if(const place &on, I first, I last, O out, P keeps) { return copy_if(on, first, last, first, out, keeps); }
template <class I, class O, class P> NOYAU_UNSEEN O remove_copy_if(const place &on, I first, I last, O out, P drops) { return copy_if(on, first, last, out, not_fn(drops)); }
template <class I, class P> NOYAU_UNSEEN I remove_if(const place &on, I first, I last, P drops) { return copy_if(on, first, last, first, not_fn(drops)); }
template <class I, class S, class P> NOYAU_UNSEEN I remove_if(const place &on, I first, I last, S stencil, P drops) { return copy_if(on, first, last, stencil, first, not_fn(drops)); }
template <class I, class T> NOYAU_UNSEEN I remove(const place &on, I first, I last, T value) {
    return remove_if(on, first, last, [=](const auto &each) NOYAU_UNSEEN { return each == value; });
}
template <class I, class P> NOYAU_UNSEEN I stable_partition(const place &on, I first, I last, P is) {
    ptrdiff_t many = 0, *into = &many;
    on.once([=]() mutable NOYAU_UNSEEN {
        std::vector<value_of<I>> all, rest;
        for (ptrdiff_t i = 0; i < last - first; ++i) {
            const auto value = noyau_load(first, i, on.pc);
            (is(value) ? all : rest).push_back(value);
        }
        *into = (ptrdiff_t)all.size(), all.insert(all.end(), rest.begin(), rest.end()), put(on, all, first); });
    return first + many;
}
template <class I, class P> NOYAU_UNSEEN I partition(const place &on, I first, I last, P is) { return stable_partition(on, first, last, is); }
template <class I, class O, class E> NOYAU_UNSEEN O unique_copy(const place &on, I first, I last, O out, E same) {
    ptrdiff_t many = 0, *into = &many;
    on.once([=]() mutable NOYAU_UNSEEN {
        std::vector<value_of<I>> kept;
        for (ptrdiff_t i = 0; i < last - first; ++i) {
            const auto value = noyau_load(first, i, on.pc);
            if (kept.empty() || !same(kept.back(), value)) kept.push_back(value);
        }
        put(on, kept, out), *into = (ptrdiff_t)kept.size(); });
    return out + many;
}
template <class I, class O> NOYAU_UNSEEN O unique_copy(const place &on, I first, I last, O out) { return unique_copy(on, first, last, out, equal_to()); }
template <class I, class... E> NOYAU_UNSEEN I unique(const place &on, I first, I last, E... same) { return unique_copy(on, first, last, first, same...); }
template <class K, class I, class... E> NOYAU_UNSEEN pair<K, I> unique_by_key(const place &on, K keys, K end, I in, E... same) {
    return reduce_by_key(on, keys, end, in, keys, in, std::conditional_t<sizeof...(E) == 0, equal_to, std::tuple_element_t<0, std::tuple<E..., int>>>(same...),
                         [](const auto &a, const auto &) NOYAU_UNSEEN { return a; });
}
template <class I> NOYAU_UNSEEN void reverse(const place &on, I first, I last) {
    on.once([=]() NOYAU_UNSEEN { auto all = values(on, first, last); std::reverse(all.begin(), all.end()), put(on, all, first); });
}
template <class I, class O> NOYAU_UNSEEN O reverse_copy(const place &on, I first, I last, O out) {
    return copy(on, std::reverse_iterator<I>(last), std::reverse_iterator<I>(first), out);
}

/* Sorted ranges. */
template <class I, class F> NOYAU_UNSEEN void sort(const place &on, I first, I last, F before) {
    on.once([=]() NOYAU_UNSEEN {
        auto all = values(on, first, last);
        std::stable_sort(all.begin(), all.end(), before), put(on, all, first); });
}
template <class I> NOYAU_UNSEEN void sort(const place &on, I first, I last) { sort(on, first, last, less()); }
template <class I, class... F> NOYAU_UNSEEN void stable_sort(const place &on, I first, I last, F... before) { sort(on, first, last, before...); }
template <class K, class I, class F> NOYAU_UNSEEN void sort_by_key(const place &on, K keys, K end, I in, F before) {
    on.once([=]() NOYAU_UNSEEN {
        const auto heads = values(on, keys, end);
        const auto all = values(on, in, in + (end - keys));
        std::vector<size_t> order(heads.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(heads[a], heads[b]); });
        for (size_t i = 0; i < order.size(); ++i) noyau_store(keys, i, heads[order[i]], on.pc), noyau_store(in, i, all[order[i]], on.pc); });
}
template <class K, class I> NOYAU_UNSEEN void sort_by_key(const place &on, K keys, K end, I in) { sort_by_key(on, keys, end, in, less()); }
template <class K, class I, class... F> NOYAU_UNSEEN void stable_sort_by_key(const place &on, K keys, K end, I in, F... before) { sort_by_key(on, keys, end, in, before...); }
template <class I, class J, class O, class F> NOYAU_UNSEEN O merge(const place &on, I first, I last, J other, J end, O out, F before) {
    on.once([=]() NOYAU_UNSEEN {
        const auto a = values(on, first, last), b = values(on, other, end);
        std::vector<value_of<I>> all(a.size() + b.size());
        std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(), before), put(on, all, out); });
    return out + (last - first) + (end - other);
}
template <class I, class J, class O> NOYAU_UNSEEN O merge(const place &on, I first, I last, J other, J end, O out) { return merge(on, first, last, other, end, out, less()); }

/* Positions in a sorted range, of one value or of each of a range of values. */
template <class I, class T, class F> NOYAU_UNSEEN ptrdiff_t bound(const place &on, I first, I last, const T &value, F is_past) {
    ptrdiff_t low = 0, high = last - first;
    while (low < high) {
        const ptrdiff_t middle = low + (high - low) / 2;
        if (is_past(noyau_load(first, middle, on.pc), value)) high = middle;
        else low = middle + 1;
    }
    return low;
}
struct not_less {
    template <class A, class B> NOYAU_IN bool operator()(const A &each, const B &value) const { return !(each < value); }
};
struct more {
    template <class A, class B> NOYAU_IN bool operator()(const A &each, const B &value) const { return value < each; }
};
#define NOYAU_BOUND(name, is_past)                                                                                      \
    template <class I, class T> NOYAU_UNSEEN I name(const place &on, I first, I last, T value) {                         \
        ptrdiff_t at = 0, *into = &at;                                                                                   \
        on.once([=]() NOYAU_UNSEEN { *into = bound(on, first, last, value, is_past()); });                               \
        return first + at;                                                                                               \
    }                                                                                                                    \
    template <class I, class J, class O> NOYAU_UNSEEN O name(const place &on, I first, I last, J wanted, J end, O out) { \
        return transform(on, wanted, end, out, [=](const auto &value) NOYAU_UNSEEN { return bound(on, first, last, value, is_past()); }); \
    }
NOYAU_BOUND(lower_bound, not_less)
NOYAU_BOUND(upper_bound, more)
template <class I, class T> NOYAU_UNSEEN bool binary_search(const place &on, I first, I last, T value) {
    return lower_bound(on, first, last, value) != upper_bound(on, first, last, value);
}
template <class I, class J, class O> NOYAU_UNSEEN O binary_search(const place &on, I first, I last, J wanted, J end, O out) {
    return transform(on, wanted, end, out, [=](const auto &value) NOYAU_UNSEEN {
        return bound(on, first, last, value, not_less()) != bound(on, first, last, value, more()); });
}
} // namespace noyau

/* By a policy, or where the ranges lie. */
#define NOYAU_ALGORITHM(name)                                                                                        \
    template <class First, class... More> NOYAU_CALLED auto name(First first, More... more) {                            \
        if constexpr (std::is_same<First, noyau_policy>::value) return noyau::name(noyau_place{first, NOYAU_PC}, more...); \
        else return noyau::name(noyau_place{{noyau_is_on_device<First, More...>()}, NOYAU_PC}, first, more...); \
    }
NOYAU_ALGORITHM(for_each) NOYAU_ALGORITHM(for_each_n) NOYAU_ALGORITHM(transform) NOYAU_ALGORITHM(transform_if)
NOYAU_ALGORITHM(tabulate) NOYAU_ALGORITHM(fill) NOYAU_ALGORITHM(fill_n) NOYAU_ALGORITHM(sequence)
NOYAU_ALGORITHM(generate) NOYAU_ALGORITHM(generate_n) NOYAU_ALGORITHM(replace) NOYAU_ALGORITHM(replace_if)
NOYAU_ALGORITHM(gather) NOYAU_ALGORITHM(scatter) NOYAU_ALGORITHM(scatter_if) NOYAU_ALGORITHM(swap_ranges)
NOYAU_ALGORITHM(copy) NOYAU_ALGORITHM(copy_n) NOYAU_ALGORITHM(reduce) NOYAU_ALGORITHM(transform_reduce)
NOYAU_ALGORITHM(inner_product) NOYAU_ALGORITHM(count) NOYAU_ALGORITHM(count_if) NOYAU_ALGORITHM(find)
NOYAU_ALGORITHM(find_if) NOYAU_ALGORITHM(find_if_not) NOYAU_ALGORITHM(all_of) NOYAU_ALGORITHM(any_of)
NOYAU_ALGORITHM(none_of) NOYAU_ALGORITHM(equal) NOYAU_ALGORITHM(min_element) NOYAU_ALGORITHM(max_element)
NOYAU_ALGORITHM(minmax_element) NOYAU_ALGORITHM(is_sorted) NOYAU_ALGORITHM(inclusive_scan)
NOYAU_ALGORITHM(exclusive_scan) NOYAU_ALGORITHM(transform_inclusive_scan) NOYAU_ALGORITHM(transform_exclusive_scan)
NOYAU_ALGORITHM(inclusive_scan_by_key) NOYAU_ALGORITHM(exclusive_scan_by_key) NOYAU_ALGORITHM(adjacent_difference)
NOYAU_ALGORITHM(reduce_by_key) NOYAU_ALGORITHM(copy_if) NOYAU_ALGORITHM(remove_copy_if) NOYAU_ALGORITHM(remove_if)
NOYAU_ALGORITHM(remove) NOYAU_ALGORITHM(partition) NOYAU_ALGORITHM(stable_partition) NOYAU_ALGORITHM(unique_copy)
NOYAU_ALGORITHM(unique) NOYAU_ALGORITHM(unique_by_key) NOYAU_ALGORITHM(reverse) NOYAU_ALGORITHM(reverse_copy)
NOYAU_ALGORITHM(sort) NOYAU_ALGORITHM(stable_sort) NOYAU_ALGORITHM(sort_by_key) NOYAU_ALGORITHM(stable_sort_by_key)
NOYAU_ALGORITHM(merge) NOYAU_ALGORITHM(lower_bound) NOYAU_ALGORITHM(upper_bound) NOYAU_ALGORITHM(binary_search)
} // namespace thrust
#endif
