/* Tensors of torch for the text of an extension, so that it can be called without torch: packed memory of a device. */
#ifndef NOYAU_TORCH_H
#define NOYAU_TORCH_H
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"

#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

extern "C" void noyau_refuse(const char *words);

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
struct Device {
    DeviceType kind = DeviceType::CUDA;
    Device(DeviceType kind = DeviceType::CUDA, int = 0) : kind(kind) {}
    bool is_cuda() const { return kind == DeviceType::CUDA; }
    bool is_cpu() const { return !is_cuda(); }
    DeviceType type() const { return kind; }
    int index() const { return 0; }
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
    TensorOptions() = default;
    TensorOptions(ScalarType type) : type(type) {}
    TensorOptions(Device) {}
    TensorOptions dtype(ScalarType other) const { return TensorOptions(other); }
    template <class... T> TensorOptions device(T...) const { return *this; }
    template <class... T> TensorOptions layout(T...) const { return *this; }
    template <class... T> TensorOptions requires_grad(T...) const { return *this; }
    template <class... T> TensorOptions memory_format(T...) const { return *this; }
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
/* As a kernel takes it: by value. */
template <class T, size_t N> struct noyau_packed {
    T *at;
    int64_t its_sizes[N], its_strides[N];
    auto operator[](int64_t i) const { return noyau_accessor<T, N>{at, its_sizes, its_strides}[i]; }
    int64_t size(int i) const { return its_sizes[i]; }
    int64_t stride(int i) const { return its_strides[i]; }
    T *data() const { return at; }
};
struct Tensor {
    char *at = nullptr;
    ScalarType type = ScalarType::Float;
    std::vector<int64_t> its_sizes, its_strides;
    Tensor() = default;
    Tensor(void *at, ScalarType type, std::vector<int64_t> sizes) : at((char *)at), type(type), its_sizes(sizes), its_strides(sizes.size()) {
        for (int64_t i = (int64_t)sizes.size(), step = 1; i-- > 0; step *= sizes[i]) its_strides[i] = step;
    }
    int64_t wrapped(int64_t i) const { return i < 0 ? i + dim() : i; }
    bool defined() const { return at != nullptr; }
    int64_t dim() const { return (int64_t)its_sizes.size(); }
    int64_t ndimension() const { return dim(); }
    IntArrayRef sizes() const { return its_sizes; }
    IntArrayRef strides() const { return its_strides; }
    int64_t size(int64_t i) const { return its_sizes[wrapped(i)]; }
    int64_t stride(int64_t i) const { return its_strides[wrapped(i)]; }
    int64_t numel() const {
        int64_t all = 1;
        for (int64_t each : its_sizes) all *= each;
        return all;
    }
    int64_t element_size() const { return elementSize(type); }
    int64_t itemsize() const { return element_size(); }
    size_t nbytes() const { return (size_t)(numel() * element_size()); }
    ScalarType scalar_type() const { return type; }
    ScalarType dtype() const { return type; }
    TensorOptions options() const { return TensorOptions(type); }
    Device device() const { return {}; }
    int get_device() const { return 0; }
    bool is_cuda() const { return true; }
    bool is_cpu() const { return false; }
    bool is_floating_point() const { return type >= ScalarType::Half && type != ScalarType::Bool; }
    bool is_contiguous() const { return its_strides == Tensor(at, type, its_sizes).its_strides; }
    Tensor contiguous() const {
        if (!is_contiguous()) throw std::runtime_error("a tensor that is not packed is not made so here");
        return *this;
    }
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
        std::vector<int64_t> wanted = shape.vec();
        int64_t known = 1, free = -1;
        for (size_t i = 0; i < wanted.size(); ++i) wanted[i] < 0 ? (void)(free = (int64_t)i) : (void)(known *= wanted[i]);
        if (free >= 0) wanted[(size_t)free] = known ? numel() / known : 0;
        return Tensor(contiguous().at, type, wanted);
    }
    Tensor reshape(IntArrayRef shape) const { return view(shape); }
    Tensor flatten() const { return view({-1}); }
    Tensor transpose(int64_t a, int64_t b) const {
        Tensor made = *this;
        std::swap(made.its_sizes[wrapped(a)], made.its_sizes[wrapped(b)]);
        std::swap(made.its_strides[wrapped(a)], made.its_strides[wrapped(b)]);
        return made;
    }
    Tensor t() const { return transpose(0, 1); }
    Tensor zero_() const { return cudaMemset(at, 0, nbytes()), *this; }
    Tensor clone() const;
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

/* In the line of who asks for it, which is that of the memory. */
#define NOYAU_HERE __attribute__((always_inline)) inline
NOYAU_CALLED inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) {
    Tensor made(nullptr, options.type, sizes.vec());
    made.at = (char *)noyau_device_memory((int64_t)made.nbytes(), 0, (int)made.element_size(), NOYAU_PC);
    return made;
}
NOYAU_HERE Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) { return empty(sizes, options).zero_(); }
template <class V> Tensor full(IntArrayRef sizes, V value, TensorOptions options = {}) {
    const Tensor made = empty(sizes, options);
    const auto fill = [&](auto cell) {
        for (int64_t i = 0; i < made.numel(); ++i) noyau_device_copy(made.at + i * (int64_t)sizeof cell, &cell, sizeof cell, NOYAU_PC);
    };
#define NOYAU_FILL(cell, name) if (options.type == ScalarType::name) fill((cell)value);
    NOYAU_TYPES(NOYAU_FILL)
    return made;
}
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return full(sizes, 1, options); }
NOYAU_HERE Tensor empty_like(const Tensor &x) { return empty(x.its_sizes, x.options()); }
NOYAU_HERE Tensor empty_like(const Tensor &x, TensorOptions options) { return empty(x.its_sizes, options); }
NOYAU_HERE Tensor zeros_like(const Tensor &x) { return zeros(x.its_sizes, x.options()); }
NOYAU_HERE Tensor zeros_like(const Tensor &x, TensorOptions options) { return zeros(x.its_sizes, options); }
inline Tensor ones_like(const Tensor &x) { return ones(x.its_sizes, x.options()); }
inline Tensor Tensor::clone() const {
    const Tensor made = empty_like(contiguous());
    cudaMemcpyAsync(made.at, at, nbytes(), cudaMemcpyDeviceToDevice);
    return made;
}
namespace cuda = c10::cuda;
} // namespace at

namespace torch {
using namespace at;
constexpr ScalarType kUInt8 = ScalarType::Byte, kInt8 = ScalarType::Char, kInt16 = ScalarType::Short, kInt32 = ScalarType::Int;
constexpr ScalarType kInt64 = ScalarType::Long, kFloat16 = ScalarType::Half, kFloat32 = ScalarType::Float, kBool = ScalarType::Bool;
constexpr ScalarType kFloat64 = ScalarType::Double, kBFloat16 = ScalarType::BFloat16, kHalf = kFloat16, kFloat = kFloat32;
constexpr ScalarType kDouble = kFloat64, kInt = kInt32, kLong = kInt64;
constexpr DeviceType kCUDA = DeviceType::CUDA, kCPU = DeviceType::CPU;
inline TensorOptions dtype(ScalarType type) { return type; }
template <class... T> TensorOptions device(T...) { return {}; }

/* What a function returns goes to arrays of the caller: of each its dtype, its rank, its sizes, then its cells. */
struct noyau_sink {
    int64_t *shape;
    void *cells;
    int64_t bytes;
};
NOYAU_CALLED inline void noyau_return(const Tensor &x, noyau_sink *&to) {
    to->shape[0] = (int64_t)x.type, to->shape[1] = x.dim();
    for (int64_t i = 0; i < x.dim() && i < 8; ++i) to->shape[2 + i] = x.size(i);
    if (x.is_contiguous() && (int64_t)x.nbytes() == to->bytes) cudaMemcpy(to->cells, x.at, x.nbytes(), cudaMemcpyDeviceToHost);
    ++to;
}
inline void noyau_return(const std::vector<Tensor> &all, noyau_sink *&to) { for (const Tensor &x : all) noyau_return(x, to); }
template <class... T> void noyau_return(const std::tuple<T...> &all, noyau_sink *&to) {
    std::apply([&](const auto &...x) { (noyau_return(x, to), ...); }, all);
}
template <class F> void noyau_call(F f, noyau_sink *to) {
    try {
        if constexpr (std::is_void<decltype(f())>::value) f();
        else noyau_return(f(), to);
        cudaDeviceSynchronize();
    } catch (const std::exception &error) {
        noyau_refuse(error.what());
    }
}
} // namespace torch

namespace pybind11 {
struct arg {
    arg(const char *) {}
    template <class T> arg &operator=(T &&) { return *this; }
};
} // namespace pybind11
namespace py = pybind11;
#define PYBIND11_MODULE(name, module) template <class NoyauModule> static void noyau_##module(NoyauModule &module)
#define TORCH_LIBRARY(name, module) template <class NoyauModule> static void noyau_##name(NoyauModule &module)
#define TORCH_EXTENSION_NAME noyau
#define TORCH_CHECK(test, ...) \
    do { \
        if (!(test)) throw std::runtime_error("TORCH_CHECK(" #test ") fails"); \
    } while (0)
#define AT_ASSERTM(test, ...) TORCH_CHECK(test)
#define AT_ASSERT(test) TORCH_CHECK(test)
#define TORCH_INTERNAL_ASSERT(test, ...) TORCH_CHECK(test)
#define AT_ERROR(...) throw std::runtime_error("AT_ERROR")
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
#define AT_DISPATCH_ALL_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, NOYAU_FLOATING(__VA_ARGS__) NOYAU_INTEGRAL_TYPES(__VA_ARGS__))

#endif
