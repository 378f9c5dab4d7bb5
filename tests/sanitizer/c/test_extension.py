"""Extensions of torch and of TVM as texts, called on arrays without either and without a GPU, each built once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType, from_numpy
from noyau.errors import BuildError, SignatureError, UnsupportedError
from noyau.sanitizer.c.extension import (
    UNSET,
    Extension,
    ExtensionText,
    Memory,
    TensorView,
    bindings,
    build_extension,
    call_extension,
)

TORCH = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
template <typename scalar_t> __global__ void add_kernel(const scalar_t *a, const scalar_t *b, scalar_t *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b, int64_t less) {
    TORCH_CHECK(a.is_cuda() && a.sizes() == b.sizes(), "sizes differ: ", a.dim(), " and ", b.dim());
    auto c = torch::empty_like(a);
    dim3 blockDim(64), gridDim((a.numel() + blockDim.x - 1) / blockDim.x);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, a.scalar_type(), "add", ([&] {
        add_kernel<scalar_t><<<gridDim, blockDim, 0, at::cuda::getCurrentCUDAStream()>>>(
            a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), c.data_ptr<scalar_t>(), a.numel() - less);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
typedef at::PackedTensorAccessor32<float, 2, at::RestrictPtrTraits> Rows;
__global__ void rows_kernel(Rows x, float *out, float by, int cols) {
    float sum = 0;
    for (int j = 0; j < cols; ++j) sum += x[threadIdx.x][j];
    out[threadIdx.x] = by * sum;
}
std::vector<torch::Tensor> rows(torch::Tensor x, float by) {
    auto out = torch::zeros({x.size(0)}, x.options());
    auto all = x.packed_accessor32<float, 2, at::RestrictPtrTraits>();
    rows_kernel<<<1, x.size(0)>>>(all, out.data_ptr<float>(), by, x.size(1));
    return {out, x.contiguous().reshape({-1}), x.t().to(torch::kFloat64)};
}
__global__ void last(float *x, const float *y, int n) {
    __shared__ float own;
    float seen = own = y[n];
    if (threadIdx.x == 0) own = seen + 1;
    __syncthreads();
    x[0] = own;
}
torch::Tensor twice(torch::Tensor x, const std::optional<torch::Tensor> &y, double by, std::vector<int64_t> at) {
    float *cells = x.data_ptr<float>() + at[0];
    add_kernel<float><<<1, 128>>>(cells, y ? y->data_ptr<float>() : cells, cells, x.numel() - at[0]);
    if (by) last<<<1, 64>>>(cells, cells, (int)by);
    return x;
}
__global__ void settle(float *x) {
    __shared__ float total;
    int t = threadIdx.x;
    if (t == 0) total = 1;
    __syncthreads();
    float seen = total;
    if (t == 0) total = seen + 1;
    __syncthreads();
    x[t] = total;
}
void settled(torch::Tensor x) {
    static std::unordered_map<int, float> most{{64, FLT_MAX}};
    TORCH_CHECK(most[(int)x.numel()] > 1);
    settle<<<1, 64>>>(x.data_ptr<float>());
}
float first(torch::Tensor x) { return x.data_ptr<float>()[0]; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("add", &add, py::arg("a"), py::arg("b"), py::arg("less") = 0, "adds");
    m.def("rows", &rows), m.def("twice", &twice), m.def("first", &first), m.def("settled", &settled);
}
"""
LINES = {text.strip(): f"own.cu:{number}" for number, text in enumerate(TORCH.split("\n"), 1)}
X = np.arange(60, dtype="f4").reshape(4, 15)


def extension(*texts: tuple[str, str], folder=None, flags=()) -> Extension:
    return Extension(tuple((ExtensionText(*each),) for each in texts), folder, flags)


def call(own: Extension, function: str, *args, **named):
    """Call it on arrays, each in a memory of its own."""
    memories = []

    def value(each):
        if not isinstance(each, np.ndarray):
            return each
        base = each if each.base is None else each.base
        memories.append(Memory(base.ravel(order="K").view(np.uint8), each.itemsize, base.shape))
        strides = tuple(step // each.itemsize for step in each.strides)
        return TensorView(len(memories) - 1, 0, from_numpy(each.dtype) or DType.OTHER, each.shape, strides)

    values, by_name = [value(each) for each in args], {name: value(each) for name, each in named.items()}
    return call_extension(own, function, values, memories, by_name)


def array(view: TensorView) -> np.ndarray:
    steps = [step * view.dtype.bytes for step in view.strides]
    return np.lib.stride_tricks.as_strided(view.cells.view(view.dtype.numpy), view.shape, steps)


@pytest.fixture(scope="module")
def torch_text():
    return extension(("own.cu", TORCH))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_a_function_takes_tensors_and_returns_one(torch_text, dtype):
    x = X.astype(dtype)
    end = call(torch_text, "add", x, x)
    assert end.watched.findings == ()
    assert end.watched.notes == ("threads took turns: 64 in 1 launch",)
    assert end.watched.accesses == 3 * 60
    np.testing.assert_array_equal(array(end.value), x + x)


def test_several_results_views_and_tensors_that_are_changed(torch_text):
    end = call(torch_text, "rows", np.asfortranarray(X), 2.0)
    totals, flat, wide = map(array, end.value)
    assert end.watched.findings == ()
    np.testing.assert_allclose(totals, 2 * X.sum(1))
    np.testing.assert_array_equal(flat, X.ravel())
    np.testing.assert_array_equal(wide, X.T.astype("f8"))
    end = call(torch_text, "twice", X, None, 0, [1])
    assert (end.value.memory, end.value.start, end.value.shape) == (0, 0, (4, 15))
    np.testing.assert_array_equal(end.memories[0].view("f4"), np.where(np.arange(60) < 1, 1, 2) * X.ravel())


def test_of_what_a_function_makes_it_is_known_which_elements_nobody_wrote(torch_text):
    end = call(torch_text, "add", X, X, less=3)
    assert end.value.unset.tolist() == [False] * 57 + [True] * 3
    assert end.value.cells.reshape(60, 4)[-3:].tolist() == [[UNSET] * 4] * 3
    looks_unset = np.full((4, 15), UNSET * 0x01010101, np.uint32).view("f4") / 2  # the sum holds that byte throughout
    assert not call(torch_text, "add", looks_unset, looks_unset).value.unset.any()
    fresh = Memory(np.full(256, 0xFE, np.uint8), 4, (64,), is_fresh=True)
    view = TensorView(0, 0, DType.F32, (64,), (1,))
    end = call_extension(torch_text, "settled", [view], [fresh])
    assert (end.memories[0].view("f4") == 2).all()
    (finding,) = call_extension(torch_text, "twice", [view, None, 0, [0]], [fresh]).watched.findings
    assert (finding.kind, finding.place) == ("uninitialised", LINES["if (i < n) c[i] = a[i] + b[i];"])


def test_findings_name_lines_and_parameters(torch_text):
    findings = call(torch_text, "twice", X, X[:3].copy(), 60.0, [0]).watched.findings
    seen = {(each.kind, each.place, each.severity) for each in findings}
    assert ("out-of-bounds", LINES["if (i < n) c[i] = a[i] + b[i];"], "error") in seen
    assert ("out-of-bounds", LINES["float seen = own = y[n];"], "error") in seen
    assert ("race", LINES["float seen = own = y[n];"], "error") in seen
    assert "reads y at 45, which has 45 cells" in "\n".join(map(str, findings))
    (finding,) = call(torch_text, "first", X).watched.findings
    assert (finding.kind, finding.place) == (
        "crash",
        LINES["float first(torch::Tensor x) { return x.data_ptr<float>()[0]; }"],
    )
    assert "the host touches memory of the device" in finding.message


def test_a_race_with_a_value_that_nobody_uses_is_a_warning(torch_text):
    (finding,) = call(torch_text, "settled", np.zeros(64, "f4")).watched.findings
    assert (finding.kind, finding.severity) == ("race", "warning")
    assert finding.message.endswith("nobody uses what is read there")


@pytest.mark.parametrize(
    ("function", "args", "fault"),
    [
        ("add", [X, X[:1].copy()], "RuntimeError: sizes differ: 2 and 2"),
        ("add", [X.astype("i4"), X.astype("i4")], "RuntimeError: add is not for this dtype"),
        ("add", [X], "TypeError: add takes 3 arguments"),
        ("add", [X, X, 1.5], "TypeError: a whole number is expected, and a float is given"),
        ("rows", [2.0, 2.0], "TypeError: a tensor is expected, and a float is given"),
        ("rest", [X], "AttributeError: the extension has no function rest"),
    ],
)
def test_what_a_function_raises_comes_back(torch_text, function, args, fault):
    assert call(torch_text, function, *args).fault.startswith(fault)


def test_what_no_function_takes_is_named(torch_text):
    with pytest.raises(SignatureError, match=r"no tensor of DType.U64 is handed to C\+\+ here; there are"):
        call(torch_text, "add", X.astype("u8"), X)
    with pytest.raises(SignatureError, match=r"a function of C\+\+ takes no dict here; give tensors, numbers"):
        call(torch_text, "add", {}, X)


def test_several_files_with_headers_and_the_binding_of_tvm(tmp_path):
    header = "#pragma once\ntemplate <class T> __global__ void scale(T *x, T by, int n) { x[threadIdx.x % n] *= by; }\n"
    header += "void launch(float *x, float by, int n);\n#define TORCH_OWN(x) x\n"
    (tmp_path / "src").mkdir()
    (tmp_path / "own.cuh").write_text(ExtensionText("src/own.cuh", header).rewritten)
    kernel = (
        '#include "own.cuh"\nvoid launch(float *x, float by, int n) { scale<<<1, BLOCK>>>(x, TORCH_OWN(by), n); }\n'
    )
    main = """#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include "../own.cuh"
void run(tvm::ffi::TensorView x, double by) {
    TVM_FFI_ICHECK_EQ(x.ndim(), 2) << "two axes, and not " << x.ndim();
    DLDataType f32{kDLFloat, 32, 1};
    if (x.dtype() != f32 || x.device().device_type != kDLCUDA) TVM_FFI_THROW(TypeError) << "no float32 of a device";
    launch(static_cast<float *>(x.data_ptr()), by, x.shape()[0] * x.size(-1));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scaled, run);
"""
    own = extension(("kernel.cu", kernel), ("src/main.cpp", main), folder=tmp_path, flags=("-DBLOCK=60",))
    end = call(own, "scaled", X, 3.0)
    assert end.watched.findings == ()
    np.testing.assert_array_equal(end.memories[0].view("f4"), 3 * X.ravel())
    (finding,) = call(own, "scaled", X[:2].copy(), 3.0).watched.findings
    assert (finding.kind, finding.place) == ("race", "src/own.cuh:2")
    assert call(own, "scaled", X.ravel().copy(), 3.0).fault == (
        "RuntimeError: the check ((x.ndim()) == (2)) fails: two axes, and not 1"
    )


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            '__global__ void f() { asm volatile("bar.sync 0;"); }',
            UnsupportedError,
            "f.cu: line 2 uses asm volatile: PTX cannot",
        ),
        (
            "void f(torch::Tensor x) { x.cholesky(); }",
            UnsupportedError,
            "line 2 of f.cu uses parts of CUDA that cannot be",
        ),
        (
            "void f() { AT_DISPATCH_ALL(1, [&] { scalar_t x; }); }",
            UnsupportedError,
            "f.cu: line 2 uses AT_DISPATCH_ALL,",
        ),
        ("#include <cublas_v2.h>", UnsupportedError, "line 2 of f.cu includes cublas_v2.h, which is not found"),
        ("void f(torch::Tensor x) { return 1 }", BuildError, "error: "),
    ],
)
def test_what_cannot_be_built_is_named(text, error, words):
    unit = ExtensionText("f.cu", f"#include <torch/extension.h>\n{text}\n"), ExtensionText("f.cu", bindings(["f"]))
    with pytest.raises(error) as raised:
        build_extension(Extension((unit,)))
    assert words in str(raised.value)
