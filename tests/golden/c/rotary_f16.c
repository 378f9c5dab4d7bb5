/* the kernel rotary_f16 */

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

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

/* Every float16 is a float: the exponent moves by 112, that of infinity and NaN by 224, and a denormal is made
   normal by a subtraction. The sign is spread over the bits that the exponent does not have. 0.0 ulp. */
NOYAU_INLINE float noyau_f16_to_f32(uint16_t x) {
    const int32_t cell = (int32_t)((uint32_t)x << 16) >> 3;
    const int32_t size = cell & 0x0fffe000;
    const float denormal = noyau_from_bits_f32(size + (113 << 23)) - 0x1p-14f;
    const float normal = noyau_from_bits_f32(size + (112 << 23));
    const float finite = size < 0x00800000 ? denormal : normal;
    const float number = size >= 0x0f800000 ? noyau_from_bits_f32(size + (224 << 23)) : finite;
    return noyau_from_bits_f32(noyau_bits_f32(number) | ((uint32_t)cell & 0x80000000));
}

/* To the nearest, halves to even, by the addition of a power of two whose last bit is that of the result: 2^13 times
   the float's own, and of a denormal that of the least normal number. What is left is the significand. 0.5 ulp. */
NOYAU_INLINE uint16_t noyau_f32_to_f16(float x) {
    const uint32_t bits = noyau_bits_f32(x);
    const uint32_t size = bits & 0x7fffffff;
    const uint32_t power = size < 0x38800000 ? 0x38800000 : size & 0x7f800000;
    const float large = noyau_from_bits_f32(power + (13 << 23));
    const uint32_t significand = noyau_bits_f32(noyau_from_bits_f32(size) + large) - noyau_bits_f32(large);
    const uint32_t code = significand + ((power - 0x38800000) >> 13);
    const uint32_t finite = code > 0x7c00 ? 0x7c00 : code;
    return (size > 0x7f800000 ? 0x7e00 : finite) | (bits >> 16 & 0x8000);
}

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int32_t rotary_f16_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const uint16_t *restrict x = call->buffers[0]; /* [b, s, 16] */
    const uint16_t *restrict v_sin = call->buffers[1]; /* [s, 8] */
    const uint16_t *restrict v_cos = call->buffers[2]; /* [s, 8] */
    uint16_t *restrict v12 = call->buffers[3]; /* [b, 2, s, 8] */
    const int64_t s = call->sizes[1];

    /* Items: b x s x 2. */
    if (begin >= end) {
        return NOYAU_OK;
    }
    int64_t left = begin;
    int64_t i1 = left % 2;
    left /= 2;
    int64_t i2 = left % s;
    left /= s;
    int64_t i0 = left;
    for (int64_t item = begin; item < end; ++item) {
        NOYAU_LANES
        for (int64_t i3 = 0; i3 < 4; ++i3) {
            const float x_i = noyau_f16_to_f32(x[i0 * s * 16 + i2 * 16 + i1 * 8 + i3 + 4]);
            const float v6 = -x_i;
            const float v_sin_i = noyau_f16_to_f32(v_sin[i2 * 8 + i3]);
            const float v11 = v6 * v_sin_i;
            const float v_cos_i = noyau_f16_to_f32(v_cos[i2 * 8 + i3]);
            const float x_i_2 = noyau_f16_to_f32(x[i0 * s * 16 + i2 * 16 + i1 * 8 + i3]);
            const float v9 = v_cos_i * x_i_2;
            v12[(i0 * 16 + i1 * 8) * s + i2 * 8 + i3] = noyau_f32_to_f16(v11 + v9);
        }
        NOYAU_LANES
        for (int64_t i3 = 0; i3 < 4; ++i3) {
            const float x_i = noyau_f16_to_f32(x[i0 * s * 16 + i2 * 16 + i1 * 8 + i3]);
            const float v_sin_i = noyau_f16_to_f32(v_sin[i2 * 8 + i3 + 4]);
            const float v11 = x_i * v_sin_i;
            const float v_cos_i = noyau_f16_to_f32(v_cos[i2 * 8 + i3 + 4]);
            const float x_i_2 = noyau_f16_to_f32(x[i0 * s * 16 + i2 * 16 + i1 * 8 + i3 + 4]);
            const float v9 = v_cos_i * x_i_2;
            v12[(i0 * 16 + i1 * 8) * s + i2 * 8 + i3 + 4] = noyau_f32_to_f16(v11 + v9);
        }
        if (++i1 == 2) { i1 = 0; if (++i2 == s) { i2 = 0; ++i0; } }
    }
    return NOYAU_OK;
}

static int32_t rotary_f16_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t b = shapes[0][0];
    sizes[0] = b;
    const int64_t s = shapes[0][1];
    sizes[1] = s;
    if (shapes[0][2] != 16) return 1;
    if (shapes[1][0] != s) return 2;
    if (shapes[1][1] != 8) return 2;
    if (shapes[2][0] != s) return 3;
    if (shapes[2][1] != 8) return 3;
    return 0;
}

static void rotary_f16_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t b = sizes[0];
    const int64_t s = sizes[1];
    switch (output) {
        case 0: dims[0] = b; dims[1] = 2; dims[2] = s; dims[3] = 8; break;
        default: break;
    }
}

static int64_t rotary_f16_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t rotary_f16_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t b = sizes[0];
    const int64_t s = sizes[1];
    switch (launch) {
        case 0: return b * s * 2;
        default: return 0;
    }
}

static int64_t rotary_f16_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t b = sizes[0];
    const int64_t s = sizes[1];
    switch (launch) {
        case 0: return (((b * 64 + 32) * s) / noyau_maximum_i64(1, b * s * 2)) + 1;
        default: return 0;
    }
}

static int32_t rotary_f16_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return rotary_f16_0(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t rotary_f16_dtypes[] = {10, 10, 10, 10};
static const int32_t rotary_f16_ranks[] = {3, 2, 2, 4};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel rotary_f16_kernel = {
    "rotary_f16", 3, 1, 0, 1, 2, rotary_f16_dtypes, rotary_f16_ranks,
    rotary_f16_bind, rotary_f16_shape, rotary_f16_scratch_bytes, rotary_f16_extent, rotary_f16_item_bytes, rotary_f16_run,
};
