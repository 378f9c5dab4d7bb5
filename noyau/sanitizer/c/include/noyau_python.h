/* Functions that Python calls by their names: values come as words of 64 bits, with tensors in memory that is watched,
   and go back the same way. extension.py writes and reads them. */
#ifndef NOYAU_PYTHON_H
#define NOYAU_PYTHON_H
#include "noyau_cuda.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

extern "C" {
void noyau_refuse(const char *words);
void noyau_result(const void *at, int64_t bytes);
void noyau_result_holes(const char *at, int64_t bytes, int64_t unit);
}

/* An operation that the text asks of torch, and that the headers here lack. */
struct noyau_lack : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct noyau_type_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/* The text of a message built with <<, or with commas. */
struct noyau_words {
    std::string text;
    template <class T> noyau_words &operator<<(const T &each) {
        if constexpr (std::is_same<T, char>::value) text += each;
        else if constexpr (std::is_arithmetic<T>::value) text += std::to_string(each);
        else if constexpr (std::is_convertible<const T &, std::string>::value) text += std::string(each);
        else text += "...";
        return *this;
    }
};
template <class... T> std::string noyau_text(const T &...each) {
    noyau_words all;
    (all << ... << each);
    return all.text;
}

/* Memory of a tensor: `type` is torch's number of its dtype. */
typedef std::vector<int64_t> noyau_numbers;
struct noyau_array {
    char *at = nullptr;
    int64_t type = 6, on_gpu = 1;
    noyau_numbers sizes, strides;
};
static const char *const noyau_kinds[] = {"None", "a bool", "a whole number", "a float", "a text", "a dtype", "a tensor", "a list"};

/* A value of Python. Memory that it points to is never freed: a call is a process. */
struct noyau_any {
    enum { of_none, of_bool, of_int, of_float, of_text, of_dtype, of_tensor, of_list, of_fault, of_unknown };
    int64_t kind = of_none, number = 0; /* for a text or a list: its length */
    double real = 0;
    const char *text = "";
    const noyau_array *array = nullptr;
    noyau_any *list = nullptr;
    noyau_any() = default;
    noyau_any(const char *words, int64_t kind = of_text) : kind(kind), number((int64_t)strlen(words)), text(strdup(words)) {}
    noyau_any(const std::string &words, int64_t kind = of_text) : noyau_any(words.c_str(), kind) {}
    noyau_any(const noyau_array &of) : kind(of_tensor), array(new noyau_array(of)) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    noyau_any(T x) : kind(std::is_same<T, bool>::value ? of_bool : std::is_floating_point<T>::value ? of_float : of_int), number((int64_t)x), real((double)x) {}
    template <class T> noyau_any(const std::vector<T> &all) : kind(of_list), list(new noyau_any[all.size()]) {
        for (const T &each : all) list[number++] = noyau_any(each);
    }
    template <class T> noyau_any(const std::optional<T> &x) { if (x) *this = noyau_any(*x); }
    template <class... T> noyau_any(const std::tuple<T...> &all) : kind(of_list), list(new noyau_any[sizeof...(T)]) {
        std::apply([&](const auto &...each) { ((list[number++] = noyau_any(each)), ...); }, all);
    }
    NOYAU_UNSEEN noyau_any(const int64_t *&from, void **arrays) : kind(*from++), number(kind == of_none ? 0 : *from++), real((double)number) {
        if (kind == of_float) __builtin_memcpy(&real, from - 1, sizeof real);
        if (kind == of_text) {
            char *into = new char[(size_t)number + 1]();
            for (int64_t i = 0; i < number; ++i) into[i] = (char)*from++;
            text = into;
        }
        if (kind == of_list) list = new noyau_any[(size_t)number];
        for (int64_t i = 0; kind == of_list && i < number; ++i) list[i] = noyau_any(from, arrays);
        if (kind == of_tensor) {
            const int64_t *rest = from + 4 + from[3], rank = from[3];
            array = new noyau_array{(char *)arrays[number] + from[0], from[1], from[2], {from + 4, rest}, {rest, rest + rank}};
            from = rest + rank;
        }
    }
};

/* Converts a value of Python to the parameter of a function. */
template <class T, class = void> struct noyau_as;
inline NOYAU_UNSEEN void noyau_expect(const noyau_any &x, bool fits, const char *what) {
    if (!fits) throw noyau_type_error(std::string(what) + " is expected, and " + noyau_kinds[x.kind] + " is given");
}
template <class T> struct noyau_as<T, std::enable_if_t<std::is_arithmetic<T>::value>> {
    NOYAU_UNSEEN static T of(const noyau_any &x) {
        const bool is_whole = x.kind == noyau_any::of_int || x.kind == noyau_any::of_bool;
        noyau_expect(x, is_whole || (x.kind == noyau_any::of_float && std::is_floating_point<T>::value), std::is_floating_point<T>::value ? "a number" : "a whole number");
        return x.kind == noyau_any::of_float ? (T)x.real : (T)x.number;
    }
};
template <> struct noyau_as<std::string> {
    static std::string of(const noyau_any &x) { return noyau_expect(x, x.kind == noyau_any::of_text, "a text"), x.text; }
};
template <class T> struct noyau_as<std::optional<T>> {
    static std::optional<T> of(const noyau_any &x) { return x.kind == noyau_any::of_none ? std::optional<T>() : noyau_as<T>::of(x); }
};
template <class T> struct noyau_as<std::vector<T>> {
    static std::vector<T> of(const noyau_any &x) {
        noyau_expect(x, x.kind == noyau_any::of_list, "a list");
        std::vector<T> all;
        for (int64_t i = 0; i < x.number; ++i) all.push_back(noyau_as<T>::of(x.list[i]));
        return all;
    }
};

namespace pybind11 {
struct arg {
    const char *name;
    noyau_any value;
    arg(const char *name = "") : name(name) { value.kind = noyau_any::of_unknown; }
    arg &noconvert(bool = true) { return *this; }
    template <class T, class = std::enable_if_t<!std::is_same<std::decay_t<T>, arg>::value>> arg &operator=(T &&other) {
        if constexpr (std::is_constructible<noyau_any, T>::value) value = noyau_any(other);
        else value = noyau_any(); /* None */
        return *this;
    }
};
struct none {};
struct gil_scoped_release {};
struct gil_scoped_acquire {};
template <class T> using call_guard = T;
inline namespace literals {
inline arg operator""_a(const char *name, size_t) { return arg(name); }
} // namespace literals
} // namespace pybind11
namespace py = pybind11;

/* The functions that a text exports to Python, one of which is called. */
struct noyau_module {
    const char *wanted;
    noyau_any given, named; /* lists: by position; alternating names and values */
    bool is_called = false;
    noyau_any result;
    std::string text;
    std::string &doc() { return text; }
    noyau_module &attr(const char *) { return *this; }
    template <class T> noyau_module &operator=(const T &) { return *this; }
    template <class R, class... A, class... More> noyau_module &def(const char *name, R (*f)(A...), const More &...more) {
        return call<R, A...>(name, f, more...);
    }
    template <class F, class... More, class = std::enable_if_t<std::is_class<F>::value>> noyau_module &def(const char *name, F f, const More &...more) {
        return lambda(name, f, &F::operator(), more...);
    }

private:
    template <class F, class R, class... A, class... More> noyau_module &lambda(const char *name, F f, R (F::*)(A...) const, const More &...more) {
        return call<R, A...>(name, f, more...);
    }
    template <class R, class... A, class F, class... More> noyau_module &call(const char *name, F f, const More &...more) {
        constexpr size_t count = sizeof...(A), more_count = sizeof...(More);
        if (is_called || strcmp(wanted, name)) return *this;
        pybind11::arg parameters[more_count + 1];
        noyau_any values[count + 1];
        size_t known = 0;
        const auto take = [&](const auto &each) {
            if constexpr (std::is_same<std::decay_t<decltype(each)>, pybind11::arg>::value) parameters[known++] = each;
        };
        (take(more), ...);
        if (arguments(values, count, parameters, known, name)) is_called = true, apply<R, A...>(f, values, std::index_sequence_for<A...>());
        return *this;
    }
    NOYAU_UNSEEN bool arguments(noyau_any *values, size_t count, const pybind11::arg *parameters, size_t known, const char *name) {
        bool fits = (size_t)given.number <= count;
        for (size_t i = 0; fits && i < count; ++i) {
            values[i] = i < (size_t)given.number ? given.list[i] : parameters[i < known ? i : known].value;
            for (int64_t k = 0; k < named.number && i < known && i >= (size_t)given.number; k += 2)
                if (!strcmp(named.list[k].text, parameters[i].name)) values[i] = named.list[k + 1];
            fits = values[i].kind != noyau_any::of_unknown;
        }
        if (!fits) result = noyau_any(std::string("TypeError: ") + name + " takes " + std::to_string(count) + " arguments, and others are given", noyau_any::of_fault);
        return fits;
    }
    template <class R, class... A, class F, size_t... Number> void apply(F f, const noyau_any *values, std::index_sequence<Number...>) {
        std::tuple<std::decay_t<A>...> all{noyau_as<std::decay_t<A>>::of(values[Number])...};
        (void)all, (void)values;
        if constexpr (std::is_void<R>::value) f(static_cast<A &&>(std::get<Number>(all))...), result = {};
        else result = noyau_any(f(static_cast<A &&>(std::get<Number>(all))...));
    }
};
struct noyau_binding {
    void (*bind)(noyau_module &);
    noyau_binding *next;
    noyau_binding(void (*bind)(noyau_module &));
};
inline noyau_binding *noyau_bindings = nullptr;
inline noyau_binding::noyau_binding(void (*bind)(noyau_module &)) : bind(bind), next(noyau_bindings) { noyau_bindings = this; }
#define PYBIND11_MODULE(name, module)               \
    static void noyau_bind(noyau_module &);         \
    static noyau_binding noyau_bound(noyau_bind);   \
    static void noyau_bind([[maybe_unused]] noyau_module &module)

/* The words of a result: for a tensor the number of its memory, or -1, its cells, and which of them are unset. */
struct noyau_answer {
    const int64_t *storages; /* the number of memories, and the bytes of each */
    void **arrays;
    NOYAU_UNSEEN static void put(int64_t word) { noyau_result(&word, sizeof word); }
    NOYAU_UNSEEN void put(const noyau_any &x) const {
        put(x.kind);
        if (x.kind == noyau_any::of_tensor) return tensor(*x.array);
        if (x.kind == noyau_any::of_float) noyau_result(&x.real, sizeof x.real);
        else if (x.kind != noyau_any::of_none) put(x.number);
        for (int64_t i = 0; *x.text && i < x.number; ++i) put(x.text[i] & 0xFF);
        for (int64_t i = 0; x.list && i < x.number; ++i) put(x.list[i]);
    }
    NOYAU_UNSEEN void tensor(const noyau_array &x) const {
        int64_t source = -1, start = 0, last = 0;
        for (int64_t i = 0; i < storages[0]; ++i)
            if (x.at >= (char *)arrays[i] && x.at <= (char *)arrays[i] + storages[i + 1]) source = i, start = x.at - (char *)arrays[i];
        static const char bytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 0, 0, 0, 1, 0, 0, 0, 2};
        const int64_t head[] = {source, start, x.type, x.on_gpu, (int64_t)x.sizes.size()};
        for (int64_t each : head) put(each);
        for (int64_t each : x.sizes) put(each);
        for (int64_t each : x.strides) put(each);
        if (source >= 0) return;
        bool is_empty = !x.at;
        for (size_t i = 0; i < x.sizes.size(); ++i) last += (x.sizes[i] - 1) * x.strides[i], is_empty |= !x.sizes[i];
        const int64_t reach = is_empty ? 0 : (last + 1) * bytes[x.type];
        put(reach), noyau_result(x.at, reach), noyau_result_holes(x.at, reach, bytes[x.type]);
    }
};

/* Makes the earlier calls, for the state in statics: the contents of their memories follow, call by call. */
static NOYAU_UNSEEN void noyau_hold(void **arrays, const int64_t *storages, const std::vector<const char *> &contents) {
    for (int64_t i = 0; i < storages[0]; ++i)
        for (int64_t k = 0; k < storages[i + 1]; ++k) ((char *)arrays[i])[k] = contents[(size_t)i][k];
}
static NOYAU_UNSEEN void noyau_call_before(const int64_t *storages, const int64_t *&from, void **arrays, int64_t number) {
    std::vector<const char *> before;
    for (int64_t i = 0; i < storages[0]; ++i) before.push_back((char *)arrays[number * storages[0] + i]);
    noyau_hold(arrays, storages, before);
    noyau_module module;
    module.wanted = noyau_any(from, arrays).text;
    module.given = noyau_any(from, arrays), module.named = noyau_any(from, arrays);
    try {
        for (noyau_binding *each = noyau_bindings; each && !module.is_called; each = each->next) each->bind(module);
        cudaDeviceSynchronize();
    } catch (const std::exception &) { /* it has been reported */
    }
}
static NOYAU_UNSEEN void noyau_calls_before(const int64_t *storages, const int64_t *&from, void **arrays) {
    std::vector<const char *> own;
    const int64_t count = *from++;
    for (int64_t i = 0; count && i < storages[0]; ++i) {
        char *copy = new char[(size_t)storages[i + 1] + 1];
        for (int64_t k = 0; k < storages[i + 1]; ++k) copy[k] = ((char *)arrays[i])[k];
        own.push_back(copy);
    }
    for (int64_t number = 1; number <= count; ++number) noyau_call_before(storages, from, arrays, number);
    if (count) noyau_hold(arrays, storages, own);
}

/* arrays[0]: the number of memories, and the bytes of each; then the number of earlier calls, and these calls; then the
   name of a function and its arguments. */
extern "C" __attribute__((weak)) NOYAU_UNSEEN void noyau_entry(void **arrays) {
    const int64_t *from = (const int64_t *)arrays[0];
    const noyau_answer answer{from, arrays + 1};
    const int64_t *storages = from;
    from += 1 + from[0];
    noyau_calls_before(storages, from, arrays + 1);
    noyau_module module;
    module.wanted = noyau_any(from, arrays + 1).text;
    module.given = noyau_any(from, arrays + 1), module.named = noyau_any(from, arrays + 1);
    const char *kind = "RuntimeError: ", *words = nullptr;
    try {
        for (noyau_binding *each = noyau_bindings; each && !module.is_called; each = each->next) each->bind(module);
        if (!module.is_called && module.result.kind == noyau_any::of_none) kind = "AttributeError: the extension has no function ", words = module.wanted;
        cudaDeviceSynchronize();
    } catch (const noyau_lack &lack) {
        noyau_refuse(lack.what());
    } catch (const noyau_type_error &error) {
        kind = "TypeError: ", words = strdup(error.what());
    } catch (const std::invalid_argument &error) {
        kind = "ValueError: ", words = strdup(error.what());
    } catch (const std::exception &error) {
        words = strdup(error.what());
    }
    answer.put(words ? noyau_any(std::string(kind) + words, noyau_any::of_fault) : module.result);
}
#endif
