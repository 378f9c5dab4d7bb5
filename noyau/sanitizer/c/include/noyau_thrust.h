/* Thrust: vectors of the device and the algorithms over ranges. An algorithm that calls a function for each element is
   a grid with a thread for each, so that accesses of the function beyond its own element race as in Thrust; an
   algorithm that passes through a range in order is a grid of one thread. Accesses belong to the calling line. */
#ifndef NOYAU_THRUST_H
#define NOYAU_THRUST_H
#include "noyau_cuda.h"
#include <cmath>
#include <complex>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <ostream>
#include <random>
#include <vector>

extern "C" int noyau_in_grid(void);
#define THRUST_VERSION 300000
#define THRUST_MAJOR_VERSION 3
#define THRUST_MINOR_VERSION 0
#define NOYAU_IN __attribute__((no_sanitize("thread"), always_inline)) inline

namespace thrust {
using std::complex;
using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;
using std::abs;
using std::advance;
using std::arg;
using std::conj;
using std::distance;
using std::exp;
using std::norm;
using std::polar;
using std::minstd_rand;
using std::minstd_rand0;
using std::normal_distribution;
using std::uniform_int_distribution;
using std::uniform_real_distribution;
using default_random_engine = std::minstd_rand;
namespace random {
using std::minstd_rand;
using std::normal_distribution;
using std::uniform_int_distribution;
using std::uniform_real_distribution;
using default_random_engine = std::minstd_rand;
} // namespace random
struct device_system_tag {};
struct host_system_tag {};
struct random_access_traversal_tag {};

/* Policies. */
struct noyau_policy {
    bool is_on_device;
    cudaStream_t stream = nullptr;
    NOYAU_IN constexpr noyau_policy on(cudaStream_t other) const { return {is_on_device, other}; }
    template <class A> NOYAU_IN constexpr noyau_policy operator()(A &&) const { return *this; }
};
inline constexpr noyau_policy device{true}, host{false}, seq{false};
namespace cuda {
inline constexpr noyau_policy par{true}, par_nosync{true};
} // namespace cuda
namespace system {
namespace cuda {
inline constexpr noyau_policy par{true};
} // namespace cuda
} // namespace system
namespace omp {
inline constexpr noyau_policy par{false};
} // namespace omp
namespace cpp {
inline constexpr noyau_policy par{false};
} // namespace cpp

/* Functions. */
#define NOYAU_FUNCTION(name, next)                                                                     \
    template <class T = void> struct name {                                                            \
        typedef T first_argument_type, second_argument_type;                                           \
        NOYAU_IN constexpr auto operator()(const T &a, const T &b) const { return next; }              \
    };                                                                                                 \
    template <> struct name<void> {                                                                    \
        template <class A, class B> NOYAU_IN constexpr auto operator()(const A &a, const B &b) const { return next; } \
    };
#define NOYAU_FUNCTION_OF_ONE(name, next)                                                              \
    template <class T = void> struct name {                                                            \
        typedef T argument_type;                                                                       \
        NOYAU_IN constexpr auto operator()(const T &a) const { return next; }                          \
    };                                                                                                 \
    template <> struct name<void> {                                                                    \
        template <class A> NOYAU_IN constexpr auto operator()(const A &a) const { return next; }       \
    };
NOYAU_FUNCTION(plus, a + b)
NOYAU_FUNCTION(minus, a - b)
NOYAU_FUNCTION(multiplies, a *b)
NOYAU_FUNCTION(divides, a / b)
NOYAU_FUNCTION(modulus, a % b)
NOYAU_FUNCTION(maximum, a < b ? b : a)
NOYAU_FUNCTION(minimum, b < a ? b : a)
NOYAU_FUNCTION(equal_to, a == b)
NOYAU_FUNCTION(not_equal_to, a != b)
NOYAU_FUNCTION(less, a < b)
NOYAU_FUNCTION(greater, b < a)
NOYAU_FUNCTION(less_equal, a <= b)
NOYAU_FUNCTION(greater_equal, a >= b)
NOYAU_FUNCTION(logical_and, a && b)
NOYAU_FUNCTION(logical_or, a || b)
NOYAU_FUNCTION(bit_and, a &b)
NOYAU_FUNCTION(bit_or, a | b)
NOYAU_FUNCTION(bit_xor, a ^ b)
NOYAU_FUNCTION(project1st, (void(b), a))
NOYAU_FUNCTION(project2nd, (void(a), b))
NOYAU_FUNCTION_OF_ONE(negate, -a)
NOYAU_FUNCTION_OF_ONE(square, a *a)
NOYAU_FUNCTION_OF_ONE(identity, a)
NOYAU_FUNCTION_OF_ONE(logical_not, !a)
template <class F> struct noyau_negated {
    F f;
    template <class... A> NOYAU_IN bool operator()(const A &...a) const { return !f(a...); }
};
template <class F> NOYAU_IN noyau_negated<F> not1(F f) { return {f}; }
template <class F> NOYAU_IN noyau_negated<F> not2(F f) { return {f}; }
template <class F> NOYAU_IN noyau_negated<F> not_fn(F f) { return {f}; }
template <class F> struct noyau_zipped {
    F f;
    template <class T> NOYAU_IN auto operator()(const T &of) const { return std::apply(f, of); }
};
template <class F> NOYAU_IN noyau_zipped<F> make_zip_function(F f) { return {f}; }

/* _1, _2: expressions of arguments. */
namespace placeholders {
template <class F> struct term {
    F f;
    template <class... A> NOYAU_IN auto operator()(const A &...a) const { return f(a...); }
};
template <class F> NOYAU_IN term<F> make_term(F f) { return {f}; }
template <int N> struct argument {
    template <class... A> NOYAU_IN auto operator()(const A &...a) const { return std::get<N>(std::tie(a...)); }
};
template <class F> NOYAU_IN auto function_of(const term<F> &of) { return of.f; }
template <class T> struct constant {
    T value;
    template <class... A> NOYAU_IN T operator()(const A &...) const { return value; }
};
template <class T> NOYAU_IN auto function_of(const T &value) { return constant<T>{value}; }
template <class A, class B> struct is_of_term : std::false_type {};
template <class A, class B> struct is_of_term<term<A>, B> : std::true_type {};
template <class A, class B> struct is_of_term<A, term<B>> : std::true_type {};
template <class A, class B> struct is_of_term<term<A>, term<B>> : std::true_type {};
#define NOYAU_TERM(sign)                                                                                        \
    template <class A, class B, class = std::enable_if_t<is_of_term<A, B>::value>>                              \
    NOYAU_IN auto operator sign(const A &a, const B &b) {                                                       \
        auto left = function_of(a);                                                                             \
        auto right = function_of(b);                                                                            \
        return make_term([=](const auto &...given) NOYAU_UNSEEN { return left(given...) sign right(given...); }); \
    }
NOYAU_TERM(+) NOYAU_TERM(-) NOYAU_TERM(*) NOYAU_TERM(/) NOYAU_TERM(%) NOYAU_TERM(<) NOYAU_TERM(>) NOYAU_TERM(<=)
NOYAU_TERM(>=) NOYAU_TERM(==) NOYAU_TERM(!=) NOYAU_TERM(&&) NOYAU_TERM(||) NOYAU_TERM(&) NOYAU_TERM(|) NOYAU_TERM(^)
template <class A> NOYAU_IN auto operator-(const term<A> &a) {
    return make_term([=](const auto &...given) NOYAU_UNSEEN { return -a.f(given...); });
}
inline constexpr term<argument<0>> _1{};
inline constexpr term<argument<1>> _2{};
inline constexpr term<argument<2>> _3{};
} // namespace placeholders

/* Iterators, each defined by its add() and minus(). */
template <class D> struct noyau_walk {
    using difference_type = ptrdiff_t;
    using iterator_category = std::random_access_iterator_tag;
    NOYAU_IN D &self() { return *static_cast<D *>(this); }
    NOYAU_IN D of() const { return *static_cast<const D *>(this); }
    NOYAU_IN D &operator+=(ptrdiff_t n) { return self().add(n), self(); }
    NOYAU_IN D &operator-=(ptrdiff_t n) { return self().add(-n), self(); }
    NOYAU_IN D &operator++() { return *this += 1; }
    NOYAU_IN D &operator--() { return *this += -1; }
    NOYAU_IN D operator++(int) { D was = of(); return *this += 1, was; }
    NOYAU_IN D operator--(int) { D was = of(); return *this += -1, was; }
    NOYAU_IN friend D operator+(D a, ptrdiff_t n) { return a += n; }
    NOYAU_IN friend D operator+(ptrdiff_t n, D a) { return a += n; }
    NOYAU_IN friend D operator-(D a, ptrdiff_t n) { return a -= n; }
    NOYAU_IN friend ptrdiff_t operator-(const D &a, const D &b) { return a.minus(b); }
    NOYAU_IN friend bool operator==(const D &a, const D &b) { return a.minus(b) == 0; }
    NOYAU_IN friend bool operator!=(const D &a, const D &b) { return a.minus(b) != 0; }
    NOYAU_IN friend bool operator<(const D &a, const D &b) { return a.minus(b) < 0; }
    NOYAU_IN friend bool operator>(const D &a, const D &b) { return a.minus(b) > 0; }
    NOYAU_IN friend bool operator<=(const D &a, const D &b) { return a.minus(b) <= 0; }
    NOYAU_IN friend bool operator>=(const D &a, const D &b) { return a.minus(b) >= 0; }
};

/* A cell of the device as the host names it: a read of it is a copy, for which the host waits. */
template <class T> class device_reference {
    T *at;
    NOYAU_UNSEEN std::remove_const_t<T> load(const void *pc) const {
        std::remove_const_t<T> value{};
        if (noyau_in_grid()) noyau_touch(at, sizeof(T), 0, pc), value = *at;
        else noyau_wait_all(), noyau_device_copy(&value, at, sizeof(T), pc);
        return value;
    }
    NOYAU_UNSEEN void store(const T &value, const void *pc) const {
        if (noyau_in_grid()) noyau_touch(at, sizeof(T), 1, pc), *at = value;
        else noyau_wait_all(), noyau_device_copy(at, &value, sizeof(T), pc);
    }

  public:
    NOYAU_IN explicit device_reference(T *at) : at(at) {}
    NOYAU_IN T *raw() const { return at; }
    NOYAU_CALLED operator std::remove_const_t<T>() const { return load(NOYAU_PC); }
    NOYAU_CALLED const device_reference &operator=(const T &value) const { return store(value, NOYAU_PC), *this; }
    NOYAU_CALLED const device_reference &operator=(const device_reference &other) const {
        return store(other.load(NOYAU_PC), NOYAU_PC), *this;
    }
#define NOYAU_UPDATE(sign) \
    NOYAU_CALLED const device_reference &operator sign##=(const T &by) const { return store(load(NOYAU_PC) sign by, NOYAU_PC), *this; }
    NOYAU_UPDATE(+) NOYAU_UPDATE(-) NOYAU_UPDATE(*) NOYAU_UPDATE(/)
    friend std::ostream &operator<<(std::ostream &out, const device_reference &of) { return out << (std::remove_const_t<T>)of; }
};
template <class T> NOYAU_IN T &raw_reference_cast(const device_reference<T> &of) { return *of.raw(); }
template <class T> NOYAU_IN T &raw_reference_cast(T &of) { return of; }

template <class T> struct device_ptr : noyau_walk<device_ptr<T>> {
    using value_type = std::remove_const_t<T>;
    using element_type = T;
    using pointer = device_ptr;
    using reference = device_reference<T>;
    T *at = nullptr;
    device_ptr() = default;
    NOYAU_IN explicit device_ptr(T *at) : at(at) {}
    NOYAU_IN device_ptr(std::nullptr_t) {}
    template <class U, class = std::enable_if_t<std::is_convertible<U *, T *>::value && !std::is_same<U, T>::value>>
    NOYAU_IN device_ptr(const device_ptr<U> &other) : at(other.at) {}
    NOYAU_IN void add(ptrdiff_t n) { at += n; }
    NOYAU_IN ptrdiff_t minus(const device_ptr &other) const { return at - other.at; }
    NOYAU_IN T *get() const { return at; }
    NOYAU_IN device_ptr base() const { return *this; }
    NOYAU_IN reference operator*() const { return reference(at); }
    NOYAU_IN reference operator[](ptrdiff_t i) const { return reference(at + i); }
};
template <class T> NOYAU_IN T *raw_pointer_cast(const device_ptr<T> &of) { return of.at; }
template <class T> NOYAU_IN T *raw_pointer_cast(T *of) { return of; }
template <class T> NOYAU_IN device_ptr<T> device_pointer_cast(T *of) { return device_ptr<T>(of); }
template <class T> NOYAU_IN device_ptr<T> operator&(const device_reference<T> &of) { return device_ptr<T>(of.raw()); }
template <class T> NOYAU_CALLED device_ptr<T> device_malloc(size_t count) {
    return device_ptr<T>((T *)noyau_device_memory((int64_t)(count * sizeof(T)), 0, sizeof(T), NOYAU_PC));
}
template <class T> NOYAU_CALLED void device_free(device_ptr<T> of) { noyau_wait_all(), noyau_device_free((void *)of.at, NOYAU_PC); }

template <class T, class = void> struct counting_iterator : noyau_walk<counting_iterator<T>> {
    using value_type = T;
    using reference = T;
    using pointer = const T *;
    T at{};
    counting_iterator() = default;
    NOYAU_IN explicit counting_iterator(T at) : at(at) {}
    NOYAU_IN void add(ptrdiff_t n) { at = (T)(at + n); }
    NOYAU_IN ptrdiff_t minus(const counting_iterator &other) const { return (ptrdiff_t)(at - other.at); }
    NOYAU_IN T operator*() const { return at; }
    NOYAU_IN T operator[](ptrdiff_t i) const { return (T)(at + i); }
};
template <class T> NOYAU_IN counting_iterator<T> make_counting_iterator(T at) { return counting_iterator<T>(at); }

template <class T> struct constant_iterator : noyau_walk<constant_iterator<T>> {
    using value_type = T;
    using reference = T;
    using pointer = const T *;
    T value{};
    ptrdiff_t at = 0;
    constant_iterator() = default;
    NOYAU_IN explicit constant_iterator(T value, ptrdiff_t at = 0) : value(value), at(at) {}
    NOYAU_IN void add(ptrdiff_t n) { at += n; }
    NOYAU_IN ptrdiff_t minus(const constant_iterator &other) const { return at - other.at; }
    NOYAU_IN T operator*() const { return value; }
    NOYAU_IN T operator[](ptrdiff_t) const { return value; }
};
template <class T> NOYAU_IN constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

struct noyau_dropped {
    template <class T> NOYAU_IN const noyau_dropped &operator=(const T &) const { return *this; }
};
template <class = void> struct discard_iterator : noyau_walk<discard_iterator<>> {
    using value_type = noyau_dropped;
    using reference = noyau_dropped;
    using pointer = void;
    ptrdiff_t at = 0;
    NOYAU_IN void add(ptrdiff_t n) { at += n; }
    NOYAU_IN ptrdiff_t minus(const discard_iterator &other) const { return at - other.at; }
    NOYAU_IN noyau_dropped operator*() const { return {}; }
    NOYAU_IN noyau_dropped operator[](ptrdiff_t) const { return {}; }
};
NOYAU_IN discard_iterator<> make_discard_iterator() { return {}; }

/* An element of a range is read and written here, for the line at `pc`. */
template <class T> NOYAU_IN std::remove_const_t<T> noyau_load(T *of, ptrdiff_t i, const void *pc) {
    noyau_touch(of + i, sizeof(T), 0, pc);
    return of[i];
}
template <class T, class V> NOYAU_IN void noyau_store(T *of, ptrdiff_t i, const V &value, const void *pc) {
    noyau_touch(of + i, sizeof(T), 1, pc);
    of[i] = (T)value;
}
template <class T> NOYAU_IN T &noyau_element(T *of, ptrdiff_t i, const void *) { return of[i]; }
template <class T> NOYAU_IN auto noyau_load(const device_ptr<T> &of, ptrdiff_t i, const void *pc) { return noyau_load(of.at, i, pc); }
template <class T, class V> NOYAU_IN void noyau_store(const device_ptr<T> &of, ptrdiff_t i, const V &value, const void *pc) {
    noyau_store(of.at, i, value, pc);
}
template <class T> NOYAU_IN T &noyau_element(const device_ptr<T> &of, ptrdiff_t i, const void *) { return of.at[i]; }
/* Any other iterator, with the library's own accesses. */
template <class I> NOYAU_IN auto noyau_load(const I &of, ptrdiff_t i, const void *) {
    return (typename std::iterator_traits<I>::value_type)of[i];
}
template <class I, class V> NOYAU_IN void noyau_store(const I &of, ptrdiff_t i, const V &value, const void *) { of[i] = value; }
template <class I> NOYAU_IN decltype(auto) noyau_element(const I &of, ptrdiff_t i, const void *) { return of[i]; }
template <class I> NOYAU_IN auto noyau_load(const std::reverse_iterator<I> &of, ptrdiff_t i, const void *pc) { return noyau_load(of.base(), -1 - i, pc); }
template <class I, class V> NOYAU_IN void noyau_store(const std::reverse_iterator<I> &of, ptrdiff_t i, const V &value, const void *pc) {
    noyau_store(of.base(), -1 - i, value, pc);
}
template <class I> using reverse_iterator = std::reverse_iterator<I>;
template <class I> NOYAU_IN std::reverse_iterator<I> make_reverse_iterator(I of) { return std::reverse_iterator<I>(of); }

template <class F, class I> struct transform_iterator : noyau_walk<transform_iterator<F, I>> {
    using value_type = std::decay_t<decltype(std::declval<F>()(noyau_load(std::declval<I>(), 0, nullptr)))>;
    using reference = value_type;
    using pointer = void;
    I of;
    F f;
    transform_iterator() = default;
    NOYAU_IN transform_iterator(I of, F f) : of(of), f(f) {}
    NOYAU_IN explicit transform_iterator(I of) : of(of) {}
    NOYAU_IN void add(ptrdiff_t n) { of += n; }
    NOYAU_IN ptrdiff_t minus(const transform_iterator &other) const { return of - other.of; }
    NOYAU_IN I base() const { return of; }
    NOYAU_IN value_type operator*() const { return f(*of); }
    NOYAU_IN value_type operator[](ptrdiff_t i) const { return f(of[i]); }
};
template <class I, class F> NOYAU_IN transform_iterator<F, I> make_transform_iterator(I of, F f) { return {of, f}; }
template <class F, class I> NOYAU_IN auto noyau_load(const transform_iterator<F, I> &of, ptrdiff_t i, const void *pc) {
    F own = of.f;
    return own(noyau_load(of.of, i, pc));
}
template <class F, class I> NOYAU_IN auto noyau_element(const transform_iterator<F, I> &of, ptrdiff_t i, const void *pc) {
    return noyau_load(of, i, pc);
}

template <class E, class I> struct permutation_iterator : noyau_walk<permutation_iterator<E, I>> {
    using value_type = typename std::iterator_traits<E>::value_type;
    using reference = typename std::iterator_traits<E>::reference;
    using pointer = void;
    E of;
    I places;
    permutation_iterator() = default;
    NOYAU_IN permutation_iterator(E of, I places) : of(of), places(places) {}
    NOYAU_IN void add(ptrdiff_t n) { places += n; }
    NOYAU_IN ptrdiff_t minus(const permutation_iterator &other) const { return places - other.places; }
    NOYAU_IN reference operator*() const { return of[*places]; }
    NOYAU_IN reference operator[](ptrdiff_t i) const { return of[places[i]]; }
};
template <class E, class I> NOYAU_IN permutation_iterator<E, I> make_permutation_iterator(E of, I places) { return {of, places}; }
template <class E, class I> NOYAU_IN auto noyau_load(const permutation_iterator<E, I> &of, ptrdiff_t i, const void *pc) {
    return noyau_load(of.of, noyau_load(of.places, i, pc), pc);
}
template <class E, class I, class V>
NOYAU_IN void noyau_store(const permutation_iterator<E, I> &of, ptrdiff_t i, const V &value, const void *pc) {
    noyau_store(of.of, noyau_load(of.places, i, pc), value, pc);
}
template <class E, class I> NOYAU_IN decltype(auto) noyau_element(const permutation_iterator<E, I> &of, ptrdiff_t i, const void *pc) {
    return noyau_element(of.of, noyau_load(of.places, i, pc), pc);
}

template <class T> struct zip_iterator;
template <class... I> struct zip_iterator<std::tuple<I...>> : noyau_walk<zip_iterator<std::tuple<I...>>> {
    using value_type = std::tuple<typename std::iterator_traits<I>::value_type...>;
    using reference = std::tuple<typename std::iterator_traits<I>::reference...>;
    using pointer = void;
    std::tuple<I...> of;
    zip_iterator() = default;
    NOYAU_IN zip_iterator(const std::tuple<I...> &of) : of(of) {}
    NOYAU_IN void add(ptrdiff_t n) { std::apply([n](I &...each) NOYAU_UNSEEN { ((each += n), ...); }, of); }
    NOYAU_IN ptrdiff_t minus(const zip_iterator &other) const { return std::get<0>(of) - std::get<0>(other.of); }
    NOYAU_IN const std::tuple<I...> &get_iterator_tuple() const { return of; }
    NOYAU_IN reference operator[](ptrdiff_t i) const {
        return std::apply([i](const I &...each) NOYAU_UNSEEN { return reference(each[i]...); }, of);
    }
    NOYAU_IN reference operator*() const { return (*this)[0]; }
};
template <class... I> NOYAU_IN auto make_zip_iterator(const std::tuple<I...> &of) { return zip_iterator<std::tuple<I...>>(of); }
template <class... I> NOYAU_IN auto make_zip_iterator(const I &...of) { return zip_iterator<std::tuple<I...>>(std::tuple<I...>(of...)); }
template <class... I> NOYAU_IN auto noyau_load(const zip_iterator<std::tuple<I...>> &of, ptrdiff_t i, const void *pc) {
    return std::apply([=](const I &...each) NOYAU_UNSEEN {
        return std::tuple<decltype(noyau_load(each, i, pc))...>(noyau_load(each, i, pc)...); }, of.of);
}
template <class... I, class V, size_t... N>
NOYAU_IN void noyau_store_each(const std::tuple<I...> &of, ptrdiff_t i, const V &value, const void *pc, std::index_sequence<N...>) {
    (noyau_store(std::get<N>(of), i, std::get<N>(value), pc), ...);
}
template <class... I, class V>
NOYAU_IN void noyau_store(const zip_iterator<std::tuple<I...>> &of, ptrdiff_t i, const V &value, const void *pc) {
    noyau_store_each(of.of, i, value, pc, std::index_sequence_for<I...>());
}
template <class... I> NOYAU_IN auto noyau_element(const zip_iterator<std::tuple<I...>> &of, ptrdiff_t i, const void *pc) {
    return std::apply([=](const I &...each) NOYAU_UNSEEN {
        return std::tuple<decltype(noyau_element(each, i, pc))...>(noyau_element(each, i, pc)...); }, of.of);
}
template <class I> using iterator_traits = std::iterator_traits<I>;

/* The side of a range: the device, the host, or nowhere, for a counting iterator; other types have none. */
enum noyau_side { NOYAU_NO_RANGE, NOYAU_NOWHERE, NOYAU_OF_HOST, NOYAU_OF_DEVICE };
template <class I, class = void> struct noyau_side_of { enum { value = NOYAU_NO_RANGE }; };
template <class I> struct noyau_side_of<I, std::void_t<typename std::iterator_traits<I>::iterator_category>> {
    enum { value = std::is_base_of<noyau_walk<I>, I>::value ? NOYAU_NOWHERE : NOYAU_OF_HOST };
};
template <class... I> constexpr int noyau_side_of_all() {
    int most = NOYAU_NO_RANGE;
    ((most = noyau_side_of<I>::value > most ? (int)noyau_side_of<I>::value : most), ...);
    return most;
}
template <class T> struct noyau_side_of<device_ptr<T>> { enum { value = NOYAU_OF_DEVICE }; };
template <class I> struct noyau_side_of<std::reverse_iterator<I>> : noyau_side_of<I> {};
template <class F, class I> struct noyau_side_of<transform_iterator<F, I>> : noyau_side_of<I> {};
template <class E, class I> struct noyau_side_of<permutation_iterator<E, I>> { enum { value = noyau_side_of_all<E, I>() }; };
template <class... I> struct noyau_side_of<zip_iterator<std::tuple<I...>>> { enum { value = noyau_side_of_all<I...>() }; };

/* Vectors. A std::vector of bool has bits, and no cells to copy. */
template <class T> using noyau_values = std::vector<std::conditional_t<std::is_same<T, bool>::value, unsigned char, T>>;
template <class T, class A = void> class device_vector;
template <class T, class A = std::allocator<T>> struct host_vector : std::vector<T, A> {
    using std::vector<T, A>::vector;
    host_vector() = default;
    host_vector(const std::vector<T, A> &other) : std::vector<T, A>(other) {}
    template <class U> NOYAU_CALLED host_vector(const device_vector<U> &other) : std::vector<T, A>(other.size()) { take(other, NOYAU_PC); }
    template <class U> NOYAU_CALLED host_vector(device_ptr<U> first, device_ptr<U> last) : std::vector<T, A>(last - first) { take(first.at, NOYAU_PC); }
    template <class U> NOYAU_CALLED host_vector &operator=(const device_vector<U> &other) {
        this->resize(other.size());
        return take(other, NOYAU_PC), *this;
    }

  private:
    template <class U> NOYAU_UNSEEN void take(const device_vector<U> &other, const void *pc) { take(raw_pointer_cast(other.data()), pc); }
    template <class U> NOYAU_UNSEEN void take(const U *from, const void *pc) {
        static_assert(std::is_same<T, std::remove_const_t<U>>::value, "noyau_thrust copies vectors of one type");
        if constexpr (std::is_same<T, bool>::value) {
            noyau_values<T> values(this->size());
            noyau_wait_all(), noyau_device_copy(values.data(), from, (int64_t)values.size(), pc);
            std::copy(values.begin(), values.end(), this->begin());
        } else noyau_wait_all(), noyau_device_copy(this->data(), from, (int64_t)(this->size() * sizeof(T)), pc);
    }
};

template <class T, class A> class device_vector {
    T *memory = nullptr;
    size_t count = 0, room = 0;
    NOYAU_UNSEEN void reserve_at(size_t wanted, const void *pc) {
        if (wanted <= room) return;
        T *wider = (T *)noyau_device_memory((int64_t)(wanted * sizeof(T)), 0, sizeof(T), pc);
        if (count) noyau_device_copy(wider, memory, (int64_t)(count * sizeof(T)), pc);
        release(pc);
        memory = wider, room = wanted;
    }
    NOYAU_UNSEEN void release(const void *pc) {
        if (memory) noyau_wait_all(), noyau_device_free(memory, pc);
        memory = nullptr, room = 0;
    }
    NOYAU_UNSEEN void put(size_t at, const T *from, size_t many, const void *pc) {
        if (many) noyau_device_copy(memory + at, from, (int64_t)(many * sizeof(T)), pc);
    }
    NOYAU_UNSEEN void resize_at(size_t wanted, const T &value, const void *pc) {
        reserve_at(wanted, pc);
        if (wanted > count) {
            const noyau_values<T> values(wanted - count, value);
            put(count, (const T *)values.data(), values.size(), pc);
        }
        count = wanted;
    }
    NOYAU_UNSEEN void assign_at(device_ptr<T> first, device_ptr<T> last, const void *pc) { assign_at(first.at, (size_t)(last - first), pc); }
    template <class I> NOYAU_UNSEEN void assign_at(I first, I last, const void *pc) {
        const noyau_values<T> values(first, last); /* of another type on a device: cell by cell */
        reserve_at(values.size(), pc), count = values.size(), put(0, (const T *)values.data(), count, pc);
    }
    NOYAU_UNSEEN void assign_at(const T *from, size_t many, const void *pc) { noyau_wait_all(), reserve_at(many, pc), count = many, put(0, from, many, pc); }

  public:
    using value_type = T;
    using size_type = size_t;
    using difference_type = ptrdiff_t;
    using iterator = device_ptr<T>;
    using const_iterator = device_ptr<const T>;
    using pointer = device_ptr<T>;
    using reference = device_reference<T>;
    using const_reference = device_reference<const T>;
    device_vector() = default;
    NOYAU_CALLED explicit device_vector(size_t n) { resize_at(n, T(), NOYAU_PC); }
    NOYAU_CALLED device_vector(size_t n, const T &value) { resize_at(n, value, NOYAU_PC); }
    NOYAU_CALLED device_vector(const device_vector &other) { assign_at(other.memory, other.count, NOYAU_PC); }
    NOYAU_UNSEEN device_vector(device_vector &&other) noexcept { swap(other); }
    template <class B> NOYAU_CALLED device_vector(const std::vector<T, B> &other) { assign_at(other.begin(), other.end(), NOYAU_PC); }
    NOYAU_CALLED device_vector(std::initializer_list<T> values) { assign_at(values.begin(), values.size(), NOYAU_PC); }
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    NOYAU_CALLED device_vector(I first, I last) { assign_at(first, last, NOYAU_PC); }
    NOYAU_CALLED ~device_vector() { release(NOYAU_PC); }
    NOYAU_CALLED device_vector &operator=(const device_vector &other) { return assign_at(other.memory, other.count, NOYAU_PC), *this; }
    NOYAU_UNSEEN device_vector &operator=(device_vector &&other) noexcept { return swap(other), *this; }
    template <class B> NOYAU_CALLED device_vector &operator=(const std::vector<T, B> &other) { return assign_at(other.begin(), other.end(), NOYAU_PC), *this; }
    NOYAU_CALLED device_vector &operator=(std::initializer_list<T> values) { return assign_at(values.begin(), values.size(), NOYAU_PC), *this; }
    template <class I> NOYAU_CALLED void assign(I first, I last) { assign_at(first, last, NOYAU_PC); }
    NOYAU_CALLED void resize(size_t n) { resize_at(n, T(), NOYAU_PC); }
    NOYAU_CALLED void resize(size_t n, const T &value) { resize_at(n, value, NOYAU_PC); }
    NOYAU_CALLED void reserve(size_t n) { reserve_at(n, NOYAU_PC); }
    NOYAU_CALLED void push_back(const T &value) { reserve_at(count < room ? room : 2 * room + 1, NOYAU_PC), put(count++, &value, 1, NOYAU_PC); }
    NOYAU_UNSEEN void pop_back() { --count; }
    NOYAU_UNSEEN void clear() { count = 0; }
    NOYAU_UNSEEN void shrink_to_fit() {}
    NOYAU_CALLED iterator erase(iterator first, iterator last) {
        const noyau_values<T> rest(last, end());
        put(first - begin(), (const T *)rest.data(), rest.size(), NOYAU_PC), count -= last - first;
        return first;
    }
    NOYAU_CALLED iterator erase(iterator at) { return erase(at, at + 1); }
    NOYAU_UNSEEN void swap(device_vector &other) noexcept { std::swap(memory, other.memory), std::swap(count, other.count), std::swap(room, other.room); }
    NOYAU_UNSEEN size_t size() const { return count; }
    NOYAU_UNSEEN size_t capacity() const { return room; }
    NOYAU_UNSEEN bool empty() const { return !count; }
    NOYAU_UNSEEN iterator begin() { return iterator(memory); }
    NOYAU_UNSEEN iterator end() { return iterator(memory + count); }
    NOYAU_UNSEEN const_iterator begin() const { return const_iterator(memory); }
    NOYAU_UNSEEN const_iterator end() const { return const_iterator(memory + count); }
    NOYAU_UNSEEN const_iterator cbegin() const { return begin(); }
    NOYAU_UNSEEN const_iterator cend() const { return end(); }
    NOYAU_UNSEEN std::reverse_iterator<iterator> rbegin() { return std::reverse_iterator<iterator>(end()); }
    NOYAU_UNSEEN std::reverse_iterator<iterator> rend() { return std::reverse_iterator<iterator>(begin()); }
    NOYAU_UNSEEN pointer data() { return begin(); }
    NOYAU_UNSEEN const_iterator data() const { return begin(); }
    NOYAU_UNSEEN reference operator[](size_t i) { return reference(memory + i); }
    NOYAU_UNSEEN const_reference operator[](size_t i) const { return const_reference(memory + i); }
    NOYAU_UNSEEN reference front() { return (*this)[0]; }
    NOYAU_UNSEEN reference back() { return (*this)[count - 1]; }
    NOYAU_UNSEEN const_reference front() const { return (*this)[0]; }
    NOYAU_UNSEEN const_reference back() const { return (*this)[count - 1]; }
    friend bool operator==(const device_vector &a, const device_vector &b) { return host_vector<T>(a) == host_vector<T>(b); }
    friend bool operator!=(const device_vector &a, const device_vector &b) { return !(a == b); }
};
} // namespace thrust
#include "noyau_thrust_algorithms.h"
#endif
