/* Tensor cores: each lane of a warp holds an unspecified part of a tile. */
#ifndef NOYAU_MMA_H
#define NOYAU_MMA_H
#include "cuda_bf16.h"
#include "cuda_fp16.h"

#define __CUDA_MMA__
namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
} // namespace precision
NOYAU_UNSEEN static inline float __float_to_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xFFFFE000u); }

template <class T> struct noyau_element { typedef T type; };
template <> struct noyau_element<precision::tf32> { typedef float type; };
template <class Use, int M, int N, int K> struct noyau_shape { enum { rows = M, cols = N }; };
template <int M, int N, int K> struct noyau_shape<matrix_a, M, N, K> { enum { rows = M, cols = K }; };
template <int M, int N, int K> struct noyau_shape<matrix_b, M, N, K> { enum { rows = K, cols = N }; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    typedef typename noyau_element<T>::type element_type;
    enum { rows = noyau_shape<Use, M, N, K>::rows, cols = noyau_shape<Use, M, N, K>::cols, num_elements = rows * cols / 32 };
    element_type x[num_elements];
};
template <class F, class V> static inline void fill_fragment(F &f, V value) {
    for (int i = 0; i < F::num_elements; ++i) f.x[i] = (typename F::element_type)value;
}
NOYAU_UNSEEN static inline int noyau_at(int cell, int cols, unsigned stride, bool by_rows) {
    return by_rows ? cell / cols * (int)stride + cell % cols : cell % cols * (int)stride + cell / cols;
}
template <class F, class T> static inline void noyau_load(F &f, const T *from, unsigned stride, bool by_rows) {
    __syncwarp();
    for (int i = 0; i < F::num_elements; ++i)
        f.x[i] = (typename F::element_type)from[noyau_at(noyau_lane() * F::num_elements + i, F::cols, stride, by_rows)];
}
template <class Use, int M, int N, int K, class T, class Layout, class V>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout> &f, const V *from, unsigned stride) {
    noyau_load(f, from, stride, std::is_same<Layout, row_major>::value);
}
template <int M, int N, int K, class T, class V>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T> &f, const V *from, unsigned stride, layout_t layout) {
    noyau_load(f, from, stride, layout == mem_row_major);
}
template <class V, int M, int N, int K, class T>
static inline void store_matrix_sync(V *to, const fragment<accumulator, M, N, K, T> &f, unsigned stride, layout_t layout) {
    typedef fragment<accumulator, M, N, K, T> F;
    for (int i = 0; i < F::num_elements; ++i)
        to[noyau_at(noyau_lane() * F::num_elements + i, F::cols, stride, layout == mem_row_major)] = (V)f.x[i];
    __syncwarp();
}
template <class T> NOYAU_UNSEEN static inline auto noyau_wide(T x) { return (typename std::conditional<std::is_integral<T>::value, int, typename std::conditional<std::is_same<T, double>::value, double, float>::type>::type)x; }

/* d = a * b + c: each lane computes its part of d, and sees the other lanes' parts of a and b. */
template <class D, class A, class B, class C> NOYAU_CALLED static void mma_sync(D &d, const A &a, const B &b, const C &c, bool = false) {
    const uint64_t *as = noyau_gather(0xffffffffu, (uint64_t)(uintptr_t)a.x, NOYAU_PC);
    decltype(noyau_wide(c.x[0])) made[D::num_elements];
    const typename A::element_type *left[32];
    for (int i = 0; i < 32; ++i) left[i] = (const typename A::element_type *)(uintptr_t)as[i];
    const uint64_t *bs = noyau_gather(0xffffffffu, (uint64_t)(uintptr_t)b.x, NOYAU_PC);
    for (int i = 0; i < D::num_elements; ++i) {
        const int cell = noyau_lane() * D::num_elements + i, row = cell / D::cols, col = cell % D::cols;
        made[i] = noyau_wide(c.x[i]);
        for (int k = 0; k < A::cols; ++k) {
            const int at = row * A::cols + k, other = k * B::cols + col;
            const auto *right = (const typename B::element_type *)(uintptr_t)bs[other / B::num_elements];
            made[i] += noyau_wide(left[at / A::num_elements][at % A::num_elements]) * noyau_wide(right[other % B::num_elements]);
        }
    }
    noyau_gather(0xffffffffu, 0, NOYAU_PC); /* until all have read */
    for (int i = 0; i < D::num_elements; ++i) d.x[i] = (typename D::element_type)made[i];
}
} // namespace wmma
} // namespace nvcuda
#endif
