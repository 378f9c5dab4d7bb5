/* Tensors of torch for the text of an extension, which can be called without torch: packed memory of a device. */
#ifndef NOYAU_TORCH_H
#define NOYAU_TORCH_H
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "../noyau_python.h"

#include <algorithm>
#include <cfloat>
#include <climits>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>

namespace c10 {
typedef __half Half;
typedef __nv_bfloat16 BFloat16;
enum class ScalarType : int8_t { Byte, Char, Short, Int, Long, Half, Float, Double, Bool = 11, BFloat16 = 15 };
#define NOYAU_TYPES(is)                                                                                        \
    is(uint8_t, Byte) is(int8_t, Char) is(int16_t, Short) is(int32_t, Int) is(int64_t, Long) is(Half, Half)    \
    is(float, Float) is(double, Double) is(bool, Bool) is(BFloat16, BFloat16)
template <ScalarType Type> struct noyau_cell;
template <class T> struct noyau_type;
#define NOYAU_TYPE(cell, name)                                                                        \
    template <> struct noyau_cell<ScalarType::name> { typedef cell type; };                           \
    template <> struct noyau_type<cell> { static constexpr ScalarType value = ScalarType::name; };
NOYAU_TYPES(NOYAU_TYPE)
template <> struct noyau_type<long long> { static constexpr ScalarType value = ScalarType::Long; };
inline int64_t elementSize(ScalarType type) {
#define NOYAU_BYTES(cell, name) if (type == ScalarType::name) return sizeof(cell);
    NOYAU_TYPES(NOYAU_BYTES)
    return 0;
}
inline const char *toString(ScalarType type) {
#define NOYAU_SPELT(cell, name) if (type == ScalarType::name) return #name;
    NOYAU_TYPES(NOYAU_SPELT)
    return "Undefined";
}
constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short, kInt = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long, kHalf = ScalarType::Half, kFloat = ScalarType::Float, kDouble = ScalarType::Double;
constexpr ScalarType kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16, kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort;
constexpr ScalarType kInt32 = kInt, kInt64 = kLong, kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;
template <class T> using optional = std::optional<T>;
using std::nullopt;
struct IntArrayRef {
    const int64_t *start;
    size_t count;
    IntArrayRef(const int64_t *start, size_t count) : start(start), count(count) {}
    IntArrayRef(std::initializer_list<int64_t> of) : start(of.begin()), count(of.size()) {}
    IntArrayRef(const std::vector<int64_t> &of) : start(of.data()), count(of.size()) {}
    size_t size() const { return count; }
    const int64_t &operator[](size_t i) const { return start[i]; }
    const int64_t *begin() const { return start; }
    const int64_t *end() const { return start + count; }
    const int64_t &back() const { return start[count - 1]; }
    std::vector<int64_t> vec() const { return {begin(), end()}; }
    bool operator==(const IntArrayRef &other) const { return vec() == other.vec(); }
    bool operator!=(const IntArrayRef &other) const { return vec() != other.vec(); }
};
enum class DeviceType : int8_t { CPU, CUDA };
constexpr DeviceType kCUDA = DeviceType::CUDA, kCPU = DeviceType::CPU;
struct Device {
    DeviceType kind = DeviceType::CUDA;
    Device(DeviceType kind = DeviceType::CUDA, int = 0) : kind(kind) {}
    Device(const std::string &name) : kind(name.compare(0, 4, "cuda") ? DeviceType::CPU : DeviceType::CUDA) {}
    Device(const char *name) : Device(std::string(name)) {}
    bool is_cuda() const { return kind == DeviceType::CUDA; }
    bool is_cpu() const { return !is_cuda(); }
    DeviceType type() const { return kind; }
    int index() const { return 0; }
    std::string str() const { return is_cuda() ? "cuda:0" : "cpu"; }
    operator std::string() const { return str(); }
    bool operator==(const Device &other) const { return kind == other.kind; }
    bool operator!=(const Device &other) const { return kind != other.kind; }
};
namespace cuda {
struct CUDAStream {
    cudaStream_t stream() const { return nullptr; }
    operator cudaStream_t() const { return nullptr; }
    void synchronize() const { cudaStreamSynchronize(nullptr); }
};
inline CUDAStream getCurrentCUDAStream(int = 0) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = 0) { return {}; }
struct CUDAGuard {
    template <class T> CUDAGuard(T) {}
};
typedef CUDAGuard OptionalCUDAGuard;
} // namespace cuda
} // namespace c10

namespace at {
using namespace c10;
struct TensorOptions {
    ScalarType type = ScalarType::Float;
    bool on_gpu = false;
    TensorOptions() = default;
    TensorOptions(ScalarType type, bool on_gpu = false) : type(type), on_gpu(on_gpu) {}
    TensorOptions(Device where) : on_gpu(where.is_cuda()) {}
    TensorOptions(DeviceType where) : on_gpu(where == DeviceType::CUDA) {}
    TensorOptions dtype(ScalarType other) const { return TensorOptions(other, on_gpu); }
    TensorOptions device(Device where, int = 0) const { return TensorOptions(type, where.is_cuda()); }
    template <class... T> TensorOptions layout(T...) const { return *this; }
    template <class... T> TensorOptions requires_grad(T...) const { return *this; }
    template <class... T> TensorOptions memory_format(T...) const { return *this; }
};
/* The former result of x.type(). */
struct noyau_old_type {
    ScalarType of;
    bool on_gpu;
    bool is_cuda() const { return on_gpu; }
    ScalarType scalarType() const { return of; }
    operator ScalarType() const { return of; }
};
template <class T, size_t N> struct noyau_accessor {
    T *at;
    const int64_t *its_sizes, *its_strides;
    noyau_accessor<T, N - 1> operator[](int64_t i) const { return {at + i * its_strides[0], its_sizes + 1, its_strides + 1}; }
    int64_t size(int i) const { return its_sizes[i]; }
    int64_t stride(int i) const { return its_strides[i]; }
    T *data() const { return at; }
};
template <class T> struct noyau_accessor<T, 1> {
    T *at;
    const int64_t *its_sizes, *its_strides;
    T &operator[](int64_t i) const { return at[i * its_strides[0]]; }
    int64_t size(int i) const { return its_sizes[i]; }
    int64_t stride(int i) const { return its_strides[i]; }
    T *data() const { return at; }
};
/* The accessor that a kernel takes by value. */
template <class T, size_t N> struct noyau_packed {
    T *at;
    int64_t its_sizes[N], its_strides[N];
    auto operator[](int64_t i) const { return noyau_accessor<T, N>{at, its_sizes, its_strides}[i]; }
    int64_t size(int i) const { return its_sizes[i]; }
    int64_t stride(int i) const { return its_strides[i]; }
    T *data() const { return at; }
};
/* Operators of one tensor, of two, and folds, each with the dtype of its result; noyau_operators.h computes them. */
#define NOYAU_UNARIES(is)                                                                                              \
    is(exp, noyau_float(x), std::exp(v)) is(log, noyau_float(x), std::log(v)) is(sqrt, noyau_float(x), std::sqrt(v))   \
    is(rsqrt, noyau_float(x), 1 / std::sqrt(v)) is(reciprocal, noyau_float(x), 1 / v) is(tanh, noyau_float(x), std::tanh(v)) \
    is(sigmoid, noyau_float(x), 1 / (1 + std::exp(-v))) is(sin, noyau_float(x), std::sin(v)) is(cos, noyau_float(x), std::cos(v)) \
    is(erf, noyau_float(x), std::erf(v)) is(relu, x.its_type, v < 0 ? 0 : v) is(abs, x.its_type, std::fabs(v))         \
    is(neg, x.its_type, -v) is(square, x.its_type, v * v) is(floor, x.its_type, std::floor(v)) is(ceil, x.its_type, std::ceil(v)) \
    is(silu, noyau_float(x), v / (1 + std::exp(-v)))
#define NOYAU_BINARIES(is)                                                                                             \
    is(add, x.its_type, v + w) is(sub, x.its_type, v - w) is(mul, x.its_type, v * w) is(div, noyau_float(x), v / w)    \
    is(pow, x.its_type, std::pow(v, (noyau_real)w)) is(maximum, x.its_type, noyau_wins(v, w, true) ? v : w)            \
    is(minimum, x.its_type, noyau_wins(v, w, false) ? v : w)
#define NOYAU_FOLDS(is)                                                                                                \
    is(sum, noyau_sum_type(x), noyau_sum_of) is(mean, noyau_float(x), noyau_mean_of)                                   \
    is(amax, x.its_type, [](auto &slice) { noyau_best_of(slice, true, false); })                                       \
    is(amin, x.its_type, [](auto &slice) { noyau_best_of(slice, false, false); })
#define NOYAU_DECLARE_UNARY(name, type, of) Tensor name() const; Tensor name##_() const;
#define NOYAU_DECLARE_BINARY(name, type, of) \
    Tensor name(const Tensor &y) const; Tensor name(double y) const; Tensor name##_(const Tensor &y) const; Tensor name##_(double y) const;
#define NOYAU_DECLARE_FOLD(name, type, of) \
    Tensor name(IntArrayRef axes, bool keepdim = false) const; Tensor name(int64_t axis, bool keepdim = false) const; Tensor name() const;
struct Tensor {
    NOYAU_UNARIES(NOYAU_DECLARE_UNARY)
    NOYAU_BINARIES(NOYAU_DECLARE_BINARY)
    NOYAU_FOLDS(NOYAU_DECLARE_FOLD)
    Tensor max() const;
    Tensor min() const;
    std::tuple<Tensor, Tensor> max(int64_t axis, bool keepdim = false) const;
    std::tuple<Tensor, Tensor> min(int64_t axis, bool keepdim = false) const;
    Tensor argmax(int64_t axis, bool keepdim = false) const;
    Tensor argmin(int64_t axis, bool keepdim = false) const;
    Tensor softmax(int64_t axis) const;
    Tensor log_softmax(int64_t axis) const;
    Tensor clamp(std::optional<double> low, std::optional<double> high = {}) const;
    Tensor matmul(const Tensor &y) const;
    Tensor mm(const Tensor &y) const;
    Tensor bmm(const Tensor &y) const;
    char *at = nullptr;
    ScalarType its_type = ScalarType::Float;
    bool on_gpu = true;
    noyau_numbers its_sizes, its_strides;
    Tensor() = default;
    Tensor(void *at, TensorOptions of, noyau_numbers sizes) : at((char *)at), its_type(of.type), on_gpu(of.on_gpu), its_sizes(sizes), its_strides(sizes.size()) {
        for (int64_t i = (int64_t)sizes.size(), step = 1; i-- > 0; step *= sizes[i]) its_strides[i] = step;
    }
    Tensor(const noyau_array &of) : at(of.at), its_type((ScalarType)of.type), on_gpu(of.on_gpu), its_sizes(of.sizes), its_strides(of.strides) {}
    operator noyau_array() const { return {at, (int64_t)its_type, on_gpu, its_sizes, its_strides}; }
    int64_t wrapped(int64_t i) const { return i < 0 ? i + dim() : i; }
    bool defined() const { return at != nullptr; }
    int64_t dim() const { return (int64_t)its_sizes.size(); }
    int64_t ndimension() const { return dim(); }
    IntArrayRef sizes() const { return its_sizes; }
    IntArrayRef strides() const { return its_strides; }
    int64_t size(int64_t i) const { return its_sizes.at((size_t)wrapped(i)); }
    int64_t stride(int64_t i) const { return its_strides.at((size_t)wrapped(i)); }
    int64_t numel() const {
        int64_t all = 1;
        for (int64_t each : its_sizes) all *= each;
        return all;
    }
    int64_t element_size() const { return elementSize(its_type); }
    int64_t itemsize() const { return element_size(); }
    size_t nbytes() const { return (size_t)(numel() * element_size()); }
    ScalarType scalar_type() const { return its_type; }
    ScalarType dtype() const { return its_type; }
    noyau_old_type type() const { return {its_type, on_gpu}; }
    TensorOptions options() const { return TensorOptions(its_type, on_gpu); }
    Device device() const { return on_gpu ? kCUDA : kCPU; }
    int get_device() const { return on_gpu - 1; }
    bool is_cuda() const { return on_gpu; }
    bool is_cpu() const { return !on_gpu; }
    bool is_floating_point() const { return (its_type >= ScalarType::Half && its_type <= ScalarType::Double) || its_type == ScalarType::BFloat16; }
    bool is_contiguous() const {
        int64_t step = 1;
        for (size_t i = its_sizes.size(); i-- > 0; step *= its_sizes[i])
            if (its_sizes[i] != 1 && its_strides[i] != step) return !numel();
        return true;
    }
    Tensor contiguous() const { return is_contiguous() ? *this : clone(); }
    void *data_ptr() const { return at; }
    template <class T> T *data_ptr() const { return (T *)at; }
    template <class T> T *data() const { return (T *)at; }
    template <class T> T *mutable_data_ptr() const { return (T *)at; }
    template <class T> const T *const_data_ptr() const { return (const T *)at; }
    template <class T> T item() const {
        T value;
        cudaMemcpy((void *)&value, at, sizeof value, cudaMemcpyDeviceToHost);
        return value;
    }
    Tensor view(IntArrayRef shape) const {
        noyau_numbers wanted = shape.vec();
        int64_t known = 1, free = -1;
        for (size_t i = 0; i < wanted.size(); ++i) wanted[i] < 0 ? (void)(free = (int64_t)i) : (void)(known *= wanted[i]);
        if (free >= 0) wanted[(size_t)free] = known ? numel() / known : 0;
        if (!is_contiguous()) throw noyau_lack("a view of a tensor that is not packed is not made here");
        const Tensor made(at, options(), wanted);
        if (made.numel() != numel()) throw std::runtime_error("the shape of a view has another number of cells");
        return made;
    }
    Tensor reshape(IntArrayRef shape) const { return contiguous().view(shape); }
    Tensor flatten() const { return reshape({-1}); }
    Tensor view_as(const Tensor &x) const { return view(x.its_sizes); }
    Tensor strided(int64_t first, noyau_numbers sizes, noyau_numbers strides) const {
        Tensor made = *this;
        made.at += first * element_size(), made.its_sizes = sizes, made.its_strides = strides;
        return made;
    }
    Tensor transpose(int64_t a, int64_t b) const {
        Tensor made = *this;
        std::swap(made.its_sizes[wrapped(a)], made.its_sizes[wrapped(b)]);
        std::swap(made.its_strides[wrapped(a)], made.its_strides[wrapped(b)]);
        return made;
    }
    Tensor t() const { return dim() < 2 ? *this : transpose(0, 1); }
    Tensor permute(IntArrayRef order) const {
        Tensor made = *this;
        for (int64_t i = 0; i < dim(); ++i) made.its_sizes[i] = size(order[i]), made.its_strides[i] = stride(order[i]);
        return made;
    }
    Tensor narrow(int64_t axis, int64_t start, int64_t length) const {
        if (start < 0 || start + length > size(axis)) throw std::runtime_error("narrow lies outside of its axis");
        Tensor made = strided(start * stride(axis), its_sizes, its_strides);
        made.its_sizes[wrapped(axis)] = length;
        return made;
    }
    Tensor slice(int64_t axis, int64_t start, int64_t end) const { return narrow(axis, start, std::min(end, size(axis)) - start); }
    Tensor squeeze(int64_t axis) const { return size(axis) == 1 ? select(axis, 0) : *this; }
    Tensor select(int64_t axis, int64_t i) const {
        Tensor made = narrow(axis, i < 0 ? i + size(axis) : i, 1);
        made.its_sizes.erase(made.its_sizes.begin() + wrapped(axis)), made.its_strides.erase(made.its_strides.begin() + wrapped(axis));
        return made;
    }
    Tensor operator[](int64_t i) const { return select(0, i); }
    Tensor unsqueeze(int64_t axis) const {
        Tensor made = *this;
        const int64_t place = axis < 0 ? axis + dim() + 1 : axis;
        made.its_sizes.insert(made.its_sizes.begin() + place, 1), made.its_strides.insert(made.its_strides.begin() + place, 1);
        return made;
    }
    Tensor zero_() const { return fill_(0); }
    template <class V> Tensor fill_(V value) const;
    Tensor clone() const { return copied(options()); }
    Tensor copied(TensorOptions to) const;
    Tensor to(TensorOptions as) const { return its_type == as.type && on_gpu == as.on_gpu ? *this : copied(as); }
    Tensor to(ScalarType as) const { return to(TensorOptions(as, on_gpu)); }
    Tensor to(Device where) const { return to(TensorOptions(its_type, where.is_cuda())); }
    Tensor to(DeviceType where) const { return to(Device(where)); }
    Tensor cuda() const { return to(kCUDA); }
    Tensor cpu() const { return to(kCPU); }
    Tensor copy_(const Tensor &from) const;
    template <class T, size_t N> noyau_accessor<T, N> accessor() const { return {(T *)at, its_sizes.data(), its_strides.data()}; }
    template <class T, size_t N, class...> noyau_packed<T, N> packed_accessor64() const {
        noyau_packed<T, N> made{(T *)at, {}, {}};
        for (size_t i = 0; i < N; ++i) made.its_sizes[i] = its_sizes[i], made.its_strides[i] = its_strides[i];
        return made;
    }
    template <class T, size_t N, template <class> class Traits, class = void> noyau_packed<T, N> packed_accessor64() const { return packed_accessor64<T, N>(); }
    template <class T, size_t N, class...> noyau_packed<T, N> packed_accessor32() const { return packed_accessor64<T, N>(); }
    template <class T, size_t N, template <class> class Traits, class = void> noyau_packed<T, N> packed_accessor32() const { return packed_accessor64<T, N>(); }
};
template <class T> struct RestrictPtrTraits {};
template <class T> struct DefaultPtrTraits {};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t> using PackedTensorAccessor32 = noyau_packed<T, N>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t> using PackedTensorAccessor64 = noyau_packed<T, N>;

/* Inlined into the caller, whose line is that of the memory. */
#define NOYAU_HERE __attribute__((always_inline)) inline
NOYAU_CALLED inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) {
    Tensor made(nullptr, options, sizes.vec());
    made.at = (char *)(options.on_gpu ? noyau_device_memory((int64_t)made.nbytes(), 0, (int)made.element_size(), NOYAU_PC) : malloc(made.nbytes()));
    return made;
}
/* Calls f with the address of each cell of a tensor, whatever its strides. */
template <class F> void noyau_each_cell(const Tensor &x, F f, size_t axis = 0, int64_t first = 0) {
    if (axis == x.its_sizes.size()) return f(x.at + first * x.element_size());
    for (int64_t i = 0; i < x.its_sizes[axis]; ++i) noyau_each_cell(x, f, axis + 1, first + i * x.its_strides[axis]);
}
#define NOYAU_MOVE(to, from, bytes) noyau_device_copy(to, from, (int64_t)(bytes), NOYAU_PC)
/* A cell as a number that holds the values of all types, and back. */
inline long double noyau_cell_at(const char *from, ScalarType type) {
#define NOYAU_READ(cell, name) \
    if (type == ScalarType::name) { cell value; return NOYAU_MOVE(&value, from, sizeof value), (long double)value; }
    NOYAU_TYPES(NOYAU_READ)
    return 0;
}
inline void noyau_put_cell(char *to, ScalarType type, long double x) {
#define NOYAU_WRITE(cell, name) \
    if (type == ScalarType::name) { const cell value = (cell)x; NOYAU_MOVE(to, &value, sizeof value); }
    NOYAU_TYPES(NOYAU_WRITE)
}
template <class V> Tensor Tensor::fill_(V value) const {
    if (is_contiguous() && value == 0) noyau_device_set(at, 0, (int64_t)nbytes(), NOYAU_PC);
    else noyau_each_cell(*this, [&](char *to) { noyau_put_cell(to, its_type, (long double)value); });
    return *this;
}
inline Tensor Tensor::copy_(const Tensor &from) const {
    if (its_sizes != from.its_sizes) throw noyau_lack("copies between shapes that differ are not made here");
    if (its_type == from.its_type && is_contiguous() && from.is_contiguous()) return NOYAU_MOVE(at, from.at, nbytes()), *this;
    std::vector<char *> cells;
    noyau_each_cell(from, [&](char *cell) { cells.push_back(cell); });
    size_t next = 0;
    noyau_each_cell(*this, [&](char *to) {
        const char *cell = cells[next++];
        if (its_type == from.its_type) NOYAU_MOVE(to, cell, element_size());
        else noyau_put_cell(to, its_type, noyau_cell_at(cell, from.its_type));
    });
    return *this;
}
inline Tensor Tensor::copied(TensorOptions to) const { return empty(its_sizes, to).copy_(*this); }
NOYAU_HERE Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) { return empty(sizes, options).zero_(); }
template <class V> NOYAU_HERE Tensor full(IntArrayRef sizes, V value, TensorOptions options = {}) { return empty(sizes, options).fill_(value); }
NOYAU_HERE Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return full(sizes, 1, options); }
NOYAU_HERE Tensor empty_like(const Tensor &x) { return empty(x.its_sizes, x.options()); }
NOYAU_HERE Tensor empty_like(const Tensor &x, TensorOptions options) { return empty(x.its_sizes, options); }
NOYAU_HERE Tensor zeros_like(const Tensor &x) { return zeros(x.its_sizes, x.options()); }
NOYAU_HERE Tensor zeros_like(const Tensor &x, TensorOptions options) { return zeros(x.its_sizes, options); }
NOYAU_HERE Tensor ones_like(const Tensor &x) { return ones(x.its_sizes, x.options()); }
template <class V> NOYAU_HERE Tensor full_like(const Tensor &x, V value) { return full(x.its_sizes, value, x.options()); }
typedef std::vector<Tensor> TensorList;
inline std::optional<Device> device_of(const Tensor &x) { return x.device(); }
namespace cuda = c10::cuda;
} // namespace at

#include "noyau_operators.h"

/* Parameters of functions that Python calls. */
template <> struct noyau_as<at::Tensor> {
    static at::Tensor of(const noyau_any &x) {
        noyau_expect(x, x.kind == noyau_any::of_tensor, "a tensor");
        return *x.array;
    }
};
template <> struct noyau_as<at::ScalarType> {
    static at::ScalarType of(const noyau_any &x) { return noyau_expect(x, x.kind == noyau_any::of_dtype, "a dtype"), (at::ScalarType)x.number; }
};
template <> struct noyau_as<at::IntArrayRef> { /* it does not hold numbers of its own */
    static at::IntArrayRef of(const noyau_any &x) { return *new noyau_numbers(noyau_as<noyau_numbers>::of(x)); }
};

namespace torch {
using namespace at;
inline TensorOptions dtype(ScalarType type) { return type; }
inline TensorOptions device(Device where) { return where; }
} // namespace torch

#define TORCH_EXTENSION_NAME noyau
#define TORCH_CHECK(test, ...) \
    do { \
        if (!(test)) throw std::runtime_error(noyau_or(noyau_text(__VA_ARGS__), "TORCH_CHECK(" #test ") fails")); \
    } while (0)
inline std::string noyau_or(std::string text, const char *other) { return text.empty() ? other : text; }
#define AT_ASSERTM(test, ...) TORCH_CHECK(test, __VA_ARGS__)
#define AT_ASSERT(test) TORCH_CHECK(test)
#define TORCH_INTERNAL_ASSERT(test, ...) TORCH_CHECK(test, __VA_ARGS__)
#define TORCH_CHECK_VALUE(test, ...) TORCH_CHECK(test, __VA_ARGS__)
#define TORCH_CHECK_TYPE(test, ...) TORCH_CHECK(test, __VA_ARGS__)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b))
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b))
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b))
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b))
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b))
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b))
#define TORCH_WARN(...) ((void)0)
#define AT_ERROR(...) throw std::runtime_error(noyau_text(__VA_ARGS__))
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess)
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_DISPATCH_CASE(which, ...) \
    case which: { \
        using scalar_t = c10::noyau_cell<which>::type; \
        return __VA_ARGS__(); \
    }
#define AT_DISPATCH_SWITCH(type, name, ...) \
    [&] { \
        switch (type) { __VA_ARGS__ default: throw std::runtime_error(std::string(name) + " is not for this dtype"); } \
    }()
#define NOYAU_FLOATING(...) AT_DISPATCH_CASE(at::ScalarType::Double, __VA_ARGS__) AT_DISPATCH_CASE(at::ScalarType::Float, __VA_ARGS__)
#define NOYAU_INTEGRAL_TYPES(...)                                                                              \
    AT_DISPATCH_CASE(at::ScalarType::Byte, __VA_ARGS__) AT_DISPATCH_CASE(at::ScalarType::Char, __VA_ARGS__)    \
    AT_DISPATCH_CASE(at::ScalarType::Short, __VA_ARGS__) AT_DISPATCH_CASE(at::ScalarType::Int, __VA_ARGS__)    \
    AT_DISPATCH_CASE(at::ScalarType::Long, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(one, type, name, ...) \
    AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(one, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...) AT_DISPATCH_FLOATING_TYPES_AND(at::ScalarType::Half, type, name, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, two, type, name, ...) \
    AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(one, __VA_ARGS__) AT_DISPATCH_CASE(two, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, NOYAU_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(one, type, name, ...) \
    AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) NOYAU_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(one, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(one, two, type, name, ...) \
    AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) NOYAU_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(one, __VA_ARGS__) AT_DISPATCH_CASE(two, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) NOYAU_INTEGRAL_TYPES(__VA_ARGS__))

#endif
