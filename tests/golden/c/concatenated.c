/* the kernel concatenated */

/* The one ABI of noyau's C kernels. A kernel's text opens with this and compiles alone. */
#ifndef NOYAU_ABI
#define NOYAU_ABI 1
#include <stdint.h>

/* What a kernel is called with. `buffers`: inputs, outputs, then scratch, packed in C order; of an input that
   has strides, the address of its first cell. `sizes`: the kernel's named sizes, as `bind` made them. */
typedef struct {
    void *const *buffers;
    const int64_t *sizes;
    int32_t launch;
} noyau_call;

/* A kernel as a runtime sees it. The runtime calls, in order: `bind`; `shape` for each output;
   `scratch_bytes` for each scratch buffer; then for launch 0, 1, ...: `run` over disjoint pieces
   of [0, extent), in any order and on any threads, all ended before the next launch begins. */
typedef struct {
    const char *name;
    int32_t inputs, outputs, scratch, launches, sizes;
    const int32_t *dtypes; /* ONNX element types of the inputs, then of the outputs */
    const int32_t *ranks;  /* of the inputs, then of the outputs */
    /* The sizes, from the shapes of the inputs, each followed, where the input has strides, by its strides
       in elements; returns 0, or 1 + the first input that does not fit. */
    int32_t (*bind)(const int64_t *const *shapes, int64_t *sizes);
    void (*shape)(const int64_t *sizes, int32_t output, int64_t *dims);
    int64_t (*scratch_bytes)(const int64_t *sizes, int32_t index);
    int64_t (*extent)(const int64_t *sizes, int32_t launch);     /* items of a launch */
    int64_t (*item_bytes)(const int64_t *sizes, int32_t launch); /* bytes that one item moves */
    /* Runs items [begin, end) of call->launch; returns 0, or a NOYAU_ status. */
    int32_t (*run)(const noyau_call *call, int64_t begin, int64_t end);
} noyau_kernel;

enum { NOYAU_OK = 0, NOYAU_INDEX_OUT_OF_BOUNDS = 1, NOYAU_OUT_OF_MEMORY = 2 };
#endif

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Before a loop of which the rounds do not depend on each other: several may run side by side. */
#if defined(__GNUC__) && !defined(__clang__)
#define NOYAU_LANES _Pragma("GCC ivdep")
#else
#define NOYAU_LANES
#endif

#include <math.h>
#include <stdint.h>

/* Always: a call that is left in a loop keeps it from being vectorised. */
#define NOYAU_INLINE static inline __attribute__((always_inline))

/* The bits of a float, and the float of some bits. */
NOYAU_INLINE uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

/* (e^r - 1) / r for |r| <= log(2)/2: 1 + r p(r), p minimax. */
NOYAU_INLINE float noyau_exp_slope_f32(float r) {
    float p = 0.001393817f;
    p = p * r + 0.0083689885f;
    p = p * r + 0.04166643f;
    p = p * r + 0.16666518f;
    p = p * r + 0.5f;
    return p * r + 1;
}

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

/* x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
   that follows. 0.0 ulp. */
__attribute__((weak, visibility("hidden"))) float noyau_minus_zero_f32 = -0.0f;
NOYAU_INLINE float noyau_rounded_f32(float x) {
    return x + noyau_minus_zero_f32;
}

/* x, but the limit where it is less; NaN stays. No compiler knows the limit: where it does, gcc computes what becomes
   of it apart, and chooses between the two at the end of a function, by six instructions instead of one. */
NOYAU_INLINE float noyau_from_limit_f32(float x, float limit) {
    const float least = noyau_rounded_f32(limit);
    return x < least ? least : x;
}

/* x, but the limit where it is greater; NaN stays. Nor is this limit known. */
NOYAU_INLINE float noyau_to_limit_f32(float x, float limit) {
    const float most = noyau_rounded_f32(limit);
    return x > most ? most : x;
}

/* e^x = 2^n e^r with whole n and |r| <= log(2)/2. At the limits the scale is 0, or overflows: masks are full of -inf,
   and a product that is rounded to 0 takes a processor longer than one with 0. 2^n in two factors: a denormal result
   is rounded once; what is added to the first one is scaled while the slope is computed. 1.2 ulp. */
NOYAU_INLINE float noyau_exp_f32(float x) {
    const float t = noyau_to_limit_f32(noyau_from_limit_f32(x, -176.1f), 89);
    const float shifted = t * 1.442695f + (0x1.8p23f + 254);
    const float n = shifted - (0x1.8p23f + 254);
    const float r = t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const uint32_t bits = noyau_bits_f32(shifted), half = bits >> 1;
    const float scale = noyau_from_bits_f32(half << 23);
    return (noyau_exp_slope_f32(r) * (r * scale) + scale) * noyau_from_bits_f32((bits - half) << 23);
}

static int32_t concatenated_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [n, a] */
    const float *restrict y = call->buffers[1]; /* [n, b] */
    float *restrict v3 = call->buffers[2]; /* [n, a + b] */
    const int64_t a = call->sizes[1];
    const int64_t b = call->sizes[2];

    /* Items: n. */
    for (int64_t i0 = begin; i0 < end; ++i0) {
        NOYAU_LANES
        for (int64_t i1 = 0; i1 < a; ++i1) {
            const float x_i = x[a * i0 + i1];
            v3[a * i0 + b * i0 + i1] = noyau_exp_f32(x_i);
        }
        NOYAU_LANES
        for (int64_t i1 = 0; i1 < b; ++i1) {
            const float y_i = y[b * i0 + i1];
            v3[(i0 + 1) * a + b * i0 + i1] = noyau_exp_f32(y_i);
        }
    }
    return NOYAU_OK;
}

static int32_t concatenated_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t n = shapes[0][0];
    sizes[0] = n;
    const int64_t a = shapes[0][1];
    sizes[1] = a;
    const int64_t b = shapes[1][1];
    sizes[2] = b;
    if (shapes[1][0] != n) return 2;
    return 0;
}

static void concatenated_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t n = sizes[0];
    const int64_t a = sizes[1];
    const int64_t b = sizes[2];
    switch (output) {
        case 0: dims[0] = n; dims[1] = a + b; break;
        default: break;
    }
}

static int64_t concatenated_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t concatenated_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t n = sizes[0];
    switch (launch) {
        case 0: return n;
        default: return 0;
    }
}

static int64_t concatenated_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t a = sizes[1];
    const int64_t b = sizes[2];
    switch (launch) {
        case 0: return a * 8 + b * 8 + 1;
        default: return 0;
    }
}

static int32_t concatenated_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return concatenated_0(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t concatenated_dtypes[] = {1, 1, 1};
static const int32_t concatenated_ranks[] = {2, 2, 2};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel concatenated_kernel = {
    "concatenated", 2, 1, 0, 1, 3, concatenated_dtypes, concatenated_ranks,
    concatenated_bind, concatenated_shape, concatenated_scratch_bytes, concatenated_extent, concatenated_item_bytes, concatenated_run,
};
