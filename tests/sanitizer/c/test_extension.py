"""Extensions of torch as texts, called on arrays without torch and without a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.errors import SignatureError, UnsupportedError
from noyau.sanitizer.c.extension import Extension, call_extension

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
template <typename scalar_t> __global__ void add_kernel(const scalar_t *a, const scalar_t *b, scalar_t *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
typedef at::PackedTensorAccessor32<float, 2, at::RestrictPtrTraits> Rows;
__global__ void rows_kernel(Rows x, float *out, float by, int cols) {
    float sum = 0;
    for (int j = 0; j < cols; ++j) sum += x[threadIdx.x][j];
    out[threadIdx.x] = by * sum;
}
torch::Tensor add(torch::Tensor a, torch::Tensor b, int64_t less) {
    TORCH_CHECK(a.is_cuda() && a.sizes() == b.sizes(), "sizes differ");
    auto c = torch::empty_like(a);
    int n = a.numel() - less;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, a.scalar_type(), "add", ([&] {
        add_kernel<scalar_t><<<(n + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
            a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), c.data_ptr<scalar_t>(), n);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
std::vector<torch::Tensor> rows(torch::Tensor x, float by) {
    auto out = torch::zeros({x.size(0)}, x.options());
    auto all = x.packed_accessor32<float, 2, at::RestrictPtrTraits>();
    rows_kernel<<<1, x.size(0)>>>(all, out.data_ptr<float>(), by, x.size(1));
    return {out, x.reshape({-1})};
}
void twice(torch::Tensor x) {
    float *at = x.data_ptr<float>();
    add_kernel<float><<<1, 128>>>(at, at, at, x.numel());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add", &add, py::arg("a"), "adds"); }
"""
EXTENSION = Extension(CUDA, "torch::Tensor add(torch::Tensor a, torch::Tensor b, int64_t less);")
X = np.arange(60, dtype="f4").reshape(4, 15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_a_function_takes_tensors_and_returns_one(dtype):
    x = X.astype(dtype)
    seen = call_extension(EXTENSION, "add", [x, x, 0], [np.zeros_like(x)])
    assert seen.findings == ()
    assert seen.notes == ("threads took turns: 64 in 1 launch",)
    np.testing.assert_array_equal(seen.outputs[0], x + x)


def test_several_results_and_arrays_that_are_changed():
    shapes = [np.zeros(4, "f4"), np.zeros(60, "f4")]
    seen = call_extension(EXTENSION, "rows", [X, 2.0], shapes)
    assert seen.findings == ()
    np.testing.assert_allclose(seen.outputs[0], 2 * X.sum(1))
    np.testing.assert_array_equal(seen.outputs[1], X.ravel())
    np.testing.assert_array_equal(call_extension(EXTENSION, "twice", [X], []).outputs[0], 2 * X)


def test_cells_that_no_kernel_writes_are_found_where_they_are_returned():
    (finding,) = call_extension(EXTENSION, "add", [X, X, 3], [np.zeros_like(X)]).findings
    assert finding.kind == "unwritten"
    assert finding.message == "the host copies 3 of the 60 cells of c, which nobody wrote; the first is c[57]"


def test_what_does_not_fit_is_named():
    with pytest.raises(SignatureError, match=r"add returns float32\[4, 15\]; float32\[60\] is asked for"):
        call_extension(EXTENSION, "add", [X, X, 0], [np.zeros(60, "f4")])
    with pytest.raises(UnsupportedError, match=r"TORCH_CHECK\(a.is_cuda\(\) && a.sizes\(\) == b.sizes\(\)\) fails"):
        call_extension(EXTENSION, "add", [X, X[:1], 0], [np.zeros_like(X)])
    with pytest.raises(SignatureError, match="a tensor of torch holds no uint64; give float32"):
        call_extension(EXTENSION, "add", [X.astype("u8"), X, 0], [np.zeros_like(X)])
