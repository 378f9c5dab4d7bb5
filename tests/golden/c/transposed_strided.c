/* the kernel transposed_strided */

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

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t transposed_strided_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [a, b, c], strides [x_stride0, x_stride1, x_stride2] */
    float *restrict v2 = call->buffers[1]; /* [a, c, b] */
    const int64_t b = call->sizes[1];
    const int64_t c = call->sizes[2];
    const int64_t x_stride0 = call->sizes[3];
    const int64_t x_stride1 = call->sizes[4];
    const int64_t x_stride2 = call->sizes[5];

    /* Items: a x ((b + 15) / 16). */
    if (begin >= end) {
        return NOYAU_OK;
    }
    int64_t left = begin;
    int64_t i2t = left % ((b + 15) / 16);
    left /= (b + 15) / 16;
    int64_t i0 = left;
    for (int64_t item = begin; item < end; ++item) {
        for (int64_t i1 = 0; i1 < c; ++i1) {
            NOYAU_LANES
            for (int64_t i2 = 0; i2 < noyau_minimum_i64(16, b - i2t * 16); ++i2) {
                const float x_i = x[(i2t * 16 + i2) * x_stride1 + i0 * x_stride0 + i1 * x_stride2];
                v2[(c * i0 + i1) * b + i2t * 16 + i2] = -x_i;
            }
        }
        if (++i2t == (b + 15) / 16) { i2t = 0; ++i0; }
    }
    return NOYAU_OK;
}

static int32_t transposed_strided_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t a = shapes[0][0];
    sizes[0] = a;
    const int64_t b = shapes[0][1];
    sizes[1] = b;
    const int64_t c = shapes[0][2];
    sizes[2] = c;
    const int64_t x_stride0 = shapes[0][3];
    sizes[3] = x_stride0;
    const int64_t x_stride1 = shapes[0][4];
    sizes[4] = x_stride1;
    const int64_t x_stride2 = shapes[0][5];
    sizes[5] = x_stride2;
    return 0;
}

static void transposed_strided_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t a = sizes[0];
    const int64_t b = sizes[1];
    const int64_t c = sizes[2];
    switch (output) {
        case 0: dims[0] = a; dims[1] = c; dims[2] = b; break;
        default: break;
    }
}

static int64_t transposed_strided_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t transposed_strided_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t a = sizes[0];
    const int64_t b = sizes[1];
    switch (launch) {
        case 0: return a * ((b + 15) / 16);
        default: return 0;
    }
}

static int64_t transposed_strided_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t a = sizes[0];
    const int64_t b = sizes[1];
    const int64_t c = sizes[2];
    switch (launch) {
        case 0: return ((a * b * c * 8) / noyau_maximum_i64(1, a * ((b + 15) / 16))) + 1;
        default: return 0;
    }
}

static int32_t transposed_strided_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return transposed_strided_0(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t transposed_strided_dtypes[] = {1, 1};
static const int32_t transposed_strided_ranks[] = {3, 3};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel transposed_strided_kernel = {
    "transposed_strided", 1, 1, 0, 1, 6, transposed_strided_dtypes, transposed_strided_ranks,
    transposed_strided_bind, transposed_strided_shape, transposed_strided_scratch_bytes, transposed_strided_extent, transposed_strided_item_bytes, transposed_strided_run,
};
