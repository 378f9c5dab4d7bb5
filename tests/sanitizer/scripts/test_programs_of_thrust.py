"""Programs with Thrust: its algorithms are right, and what they or their functions do wrong is found by the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from noyau.sanitizer.scripts.programs import check_program

WRONG = r"""
#include <cstdio>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/transform.h>
__global__ void part(float *x, int n) { if (threadIdx.x < n - 7) x[threadIdx.x] = 1; }
int main() {
    thrust::device_vector<float> x(40, 1.0f), y(33);
    float *sum = thrust::raw_pointer_cast(y.data()), *raw;
    thrust::for_each(thrust::make_counting_iterator(0), thrust::make_counting_iterator(40), [=] __device__ (int i) {
        sum[0] += i;
    });
    thrust::transform(x.begin(), x.end(), y.begin(), thrust::negate<float>());
    cudaMalloc(&raw, 32 * sizeof(float));
    part<<<1, 32>>>(raw, 32);
    thrust::device_ptr<float> first(raw);
    printf("%g\n", thrust::reduce(first, first + 32, 0.0f) * 0);
    const thrust::host_vector<bool> bits = thrust::device_vector<bool>(std::vector<bool>(3, true));
    if (!bits[2]) x[40] = 0;
}
"""
RIGHT = r"""
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <vector>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>
struct saxpy {
    const float a;
    saxpy(float a) : a(a) {}
    __host__ __device__ float operator()(const float &x, const float &y) const { return a * x + y; }
};
struct is_odd { __host__ __device__ bool operator()(int x) const { return x & 1; } };
struct by_key { const int *key; __device__ bool operator()(int a, int b) const { return key[a] < key[b]; } };
struct add_up {
    template <class T> __device__ void operator()(T t) { thrust::get<2>(t) = thrust::get<0>(t) + thrust::get<1>(t); }
};
__global__ void twice(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
#define EXPECT(is) do { if (!(is)) { printf("line %d: %s\n", __LINE__, #is); return 1; } } while (0)
int main() {
    const int n = 1000;
    thrust::host_vector<int> h(n);
    srand(3);
    thrust::generate(h.begin(), h.end(), rand);
    thrust::device_vector<int> d = h;
    thrust::sort(d.begin(), d.end());
    thrust::copy(d.begin(), d.end(), h.begin());
    for (int i = 1; i < n; ++i) EXPECT(h[i - 1] <= h[i]);
    thrust::device_vector<float> x(n), y(n, 1.0f), z(n);
    thrust::sequence(x.begin(), x.end());
    thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), saxpy(2.0f));
    EXPECT(y[10] == 21.0f);
    twice<<<(n + 127) / 128, 128>>>(thrust::raw_pointer_cast(y.data()), n);
    float total = thrust::reduce(y.begin(), y.end(), 0.0f, thrust::plus<float>());
    EXPECT(total == 2.0f * (2.0f * 499500 + 1000));
    EXPECT(thrust::reduce(x.begin(), x.end()) == 499500);
    using namespace thrust::placeholders;
    thrust::transform(x.begin(), x.end(), z.begin(), _1 * 2.0f + 1.0f);
    EXPECT(z[3] == 7.0f);
    thrust::transform(x.begin(), x.end(), y.begin(), z.begin(), thrust::multiplies<float>());
    float squares = thrust::transform_reduce(x.begin(), x.end(), thrust::square<float>(), 0.0f, thrust::plus<float>());
    EXPECT(squares > 3e8f);
    EXPECT(thrust::inner_product(x.begin(), x.begin() + 3, x.begin(), 0.0f) == 5.0f);
    thrust::device_vector<int> s(10, 1);
    thrust::exclusive_scan(s.begin(), s.end(), s.begin());
    EXPECT(s[9] == 9);
    thrust::inclusive_scan(thrust::device, s.begin(), s.end(), s.begin());
    EXPECT(s[9] == 45 && s.back() == 45);
    auto top = thrust::max_element(s.begin(), s.end());
    EXPECT(top - s.begin() == 9 && *top == 45);
    EXPECT(thrust::count_if(s.begin(), s.end(), is_odd()) == 5);
    s.erase(thrust::remove_if(s.begin(), s.end(), is_odd()), s.end());
    EXPECT(s.size() == 5);
    int keys[6] = {3, 1, 2, 1, 3, 1}, values[6] = {1, 2, 3, 4, 5, 6};
    thrust::sort_by_key(keys, keys + 6, values);
    int ko[6], vo[6];
    auto ends = thrust::reduce_by_key(keys, keys + 6, values, ko, vo);
    EXPECT(ends.first - ko == 3 && vo[0] == 12 && vo[2] == 6);
    thrust::device_vector<int> key(keys, keys + 6), order(6);
    thrust::sequence(order.begin(), order.end());
    thrust::sort(order.begin(), order.end(), by_key{thrust::raw_pointer_cast(&key[0])});
    thrust::device_vector<int> got(6);
    thrust::gather(order.begin(), order.end(), key.begin(), got.begin());
    EXPECT(got[0] == 1 && got[5] == 3);
    auto first = thrust::make_zip_iterator(thrust::make_tuple(x.begin(), y.begin(), z.begin()));
    thrust::for_each(first, first + n, add_up());
    EXPECT(z[1] == 1.0f + (float)y[1]);
    float *raw = thrust::raw_pointer_cast(x.data());
    thrust::counting_iterator<int> begin(0), end(n);
    thrust::for_each(begin, end, [=] __device__ (int i) { raw[i] += 1; });
    EXPECT(x[0] == 1.0f);
    auto lazy = thrust::make_transform_iterator(thrust::make_counting_iterator(1), thrust::negate<int>());
    EXPECT(thrust::reduce(lazy, lazy + 10) == -55);
    thrust::device_vector<int> few(order.begin(), order.begin() + 3);
    EXPECT(few.size() == 3);
    thrust::copy(few.begin(), few.end(), std::ostream_iterator<int>(std::cout, " "));
    std::vector<int> back(got.size());
    thrust::copy(got.begin(), got.end(), back.begin());
    got.resize(thrust::unique(got.begin(), got.end()) - got.begin());
    EXPECT(got.size() == 3);
    thrust::device_ptr<float> p = thrust::device_pointer_cast(raw);
    thrust::fill(p, p + 10, 4.0f);
    EXPECT(p[9] == 4.0f);
    thrust::device_vector<bool> odd(n);
    thrust::transform(h.begin(), h.end(), odd.begin(), is_odd());
    const thrust::host_vector<bool> odd_here = odd;
    const auto here = thrust::count(odd_here.begin(), odd_here.end(), true);
    EXPECT(odd_here[7] == (h[7] & 1) && thrust::count(odd.begin(), odd.end(), true) == here);
    thrust::device_vector<double> wide(x.begin(), x.end());
    printf("%g\n", (double)wide[0]);
    return 0;
}
"""


def test_what_algorithms_do_wrong_is_told_by_the_line_that_calls(tmp_path):
    path = tmp_path / "wrong.cu"
    path.write_text(WRONG, encoding="utf-8")
    found = {(each.kernel, each.kind.value, Path(each.place).name) for each in check_program(path).errors}
    assert found == {
        ("thrust::for_each", "race", "wrong.cu:14"),
        ("thrust::transform", "out-of-bounds", "wrong.cu:16"),
        ("thrust::reduce", "uninitialised", "wrong.cu:20"),
    }


@pytest.mark.long
def test_right_programs_compute_as_thrust_does(tmp_path, capfd):
    path = tmp_path / "right.cu"
    path.write_text(RIGHT, encoding="utf-8")
    found = check_program(path)
    assert capfd.readouterr().out == "0 1 2 4\n"
    assert found.is_verified, str(found)
