/* Functions of TVM's foreign function interface: tensors are views of the caller's memory. */
#ifndef NOYAU_TVM_FFI_H
#define NOYAU_TVM_FFI_H
#include "../../noyau_python.h"

enum DLDeviceType { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
enum DLDataTypeCode { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };
struct DLDevice {
    DLDeviceType device_type;
    int32_t device_id;
};
struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
};
inline bool operator==(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }
inline bool operator!=(DLDataType a, DLDataType b) { return !(a == b); }
inline bool operator==(DLDevice a, DLDevice b) { return a.device_type == b.device_type; }
inline bool operator!=(DLDevice a, DLDevice b) { return !(a == b); }
struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
typedef void *TVMFFIStreamHandle;
inline TVMFFIStreamHandle TVMFFIEnvGetStream(int, int) { return nullptr; }

namespace tvm {
namespace ffi {
struct ShapeView {
    const noyau_numbers *of;
    size_t size() const { return of->size(); }
    int64_t operator[](size_t i) const { return of->at(i); }
    int64_t at(size_t i) const { return of->at(i); }
    const int64_t *data() const { return of->data(); }
    const int64_t *begin() const { return of->data(); }
    const int64_t *end() const { return of->data() + of->size(); }
    bool operator==(ShapeView other) const { return *of == *other.of; }
    bool operator!=(ShapeView other) const { return !(*this == other); }
    int64_t Product() const {
        int64_t all = 1;
        for (int64_t each : *of) all *= each;
        return all;
    }
};
struct TensorView {
    noyau_array of;
    DLTensor described;
    TensorView(const noyau_array &x) : of(x) {
        static const uint8_t kinds[] = {kDLUInt, 8, kDLInt, 8, kDLInt, 16, kDLInt, 32, kDLInt, 64, kDLFloat, 16, kDLFloat, 32, kDLFloat, 64, 0, 0, 0, 0, 0, 0, kDLBool, 8, 0, 0, 0, 0, 0, 0, kDLBfloat, 16};
        const DLDevice device{of.on_gpu ? kDLCUDA : kDLCPU, 0};
        const DLDataType type{kinds[2 * of.type], kinds[2 * of.type + 1], 1};
        described = {of.at, device, (int32_t)of.sizes.size(), type, of.sizes.data(), of.strides.data(), 0};
    }
    TensorView(const TensorView &other) : TensorView(other.of) {}
    const DLTensor *operator->() const { return &described; }
    void *data_ptr() const { return of.at; }
    int ndim() const { return described.ndim; }
    int dim() const { return described.ndim; }
    ShapeView shape() const { return {&of.sizes}; }
    ShapeView sizes() const { return {&of.sizes}; }
    ShapeView strides() const { return {&of.strides}; }
    int64_t size(int64_t i) const { return of.sizes.at((size_t)(i < 0 ? i + ndim() : i)); }
    int64_t stride(int64_t i) const { return of.strides.at((size_t)(i < 0 ? i + ndim() : i)); }
    int64_t numel() const { return shape().Product(); }
    DLDataType dtype() const { return described.dtype; }
    DLDevice device() const { return described.device; }
    int64_t byte_offset() const { return 0; }
    bool IsContiguous() const {
        int64_t step = 1;
        for (size_t i = of.sizes.size(); i-- > 0; step *= of.sizes[i])
            if (of.sizes[i] != 1 && of.strides[i] != step) return !numel();
        return true;
    }
    bool is_contiguous() const { return IsContiguous(); }
};
typedef TensorView Tensor;
template <class T> using Optional = std::optional<T>;
typedef std::string String;
/* An error that is thrown at the end of its statement, with the text that was streamed into it. */
struct noyau_thrown {
    noyau_words words;
    template <class T> noyau_thrown &operator<<(const T &each) { return words << each, *this; }
    ~noyau_thrown() noexcept(false) { throw std::runtime_error(words.text); }
};
} // namespace ffi
} // namespace tvm
template <> struct noyau_as<tvm::ffi::TensorView> {
    static tvm::ffi::TensorView of(const noyau_any &x) { return noyau_expect(x, x.kind == noyau_any::of_tensor, "a tensor"), *x.array; }
};

#define TVM_FFI_THROW(kind) tvm::ffi::noyau_thrown() << #kind ": "
#define TVM_FFI_ICHECK(test) if (test) {} else tvm::ffi::noyau_thrown() << "the check (" #test ") fails: "
#define TVM_FFI_CHECK(test, kind) TVM_FFI_ICHECK(test)
#define TVM_FFI_ICHECK_EQ(a, b) TVM_FFI_ICHECK((a) == (b))
#define TVM_FFI_ICHECK_NE(a, b) TVM_FFI_ICHECK((a) != (b))
#define TVM_FFI_ICHECK_LT(a, b) TVM_FFI_ICHECK((a) < (b))
#define TVM_FFI_ICHECK_LE(a, b) TVM_FFI_ICHECK((a) <= (b))
#define TVM_FFI_ICHECK_GT(a, b) TVM_FFI_ICHECK((a) > (b))
#define TVM_FFI_ICHECK_GE(a, b) TVM_FFI_ICHECK((a) >= (b))
#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, ...) \
    static noyau_binding noyau_bound_##name([](noyau_module &module) { module.def(#name, __VA_ARGS__); })
#endif
