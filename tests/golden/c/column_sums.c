/* the kernel column_sums */

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

static int32_t column_sums_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [rows, n] */
    float *restrict v1_2_sum_of_block = call->buffers[2]; /* [(rows + 255) / 256, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: ((rows + 255) / 256) x ((n + 2047) / 2048). */
    if (begin >= end) {
        return NOYAU_OK;
    }
    int64_t left = begin;
    int64_t i0t = left % ((n + 2047) / 2048);
    left /= (n + 2047) / 2048;
    int64_t block = left;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t length = noyau_minimum_i64(2048, n - i0t * 2048);
        const int64_t length_2 = noyau_minimum_i64(256, rows - block * 256);
        float v1_2_sum[2048] = {0};
        for (int64_t r1 = 0; r1 < length_2; ++r1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const float x_i = x[(block * 256 + r1) * n + i0t * 2048 + i0];
                v1_2_sum[i0] += x_i;
            }
        }
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) v1_2_sum_of_block[block * n + i0t * 2048 + i0] = v1_2_sum[i0];
        if (++i0t == (n + 2047) / 2048) { i0t = 0; ++block; }
    }
    return NOYAU_OK;
}

static int32_t column_sums_1(const noyau_call *call, int64_t begin, int64_t end)
{
    float *restrict v1 = call->buffers[1]; /* [n] */
    float *restrict v1_2_sum_of_block = call->buffers[2]; /* [(rows + 255) / 256, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: (n + 2047) / 2048. */
    for (int64_t i0t = begin; i0t < end; ++i0t) {
        const int64_t length = noyau_minimum_i64(2048, n - i0t * 2048);
        double v1_2_sum[2048] = {0};
        for (int64_t block = 0; block < (rows + 255) / 256; ++block) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) v1_2_sum[i0] += (double)v1_2_sum_of_block[block * n + i0t * 2048 + i0];
        }
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) v1[i0t * 2048 + i0] = (float)v1_2_sum[i0];
    }
    return NOYAU_OK;
}

static int32_t column_sums_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t rows = shapes[0][0];
    sizes[0] = rows;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    return 0;
}

static void column_sums_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t n = sizes[1];
    switch (output) {
        case 0: dims[0] = n; break;
        default: break;
    }
}

static int64_t column_sums_scratch_bytes(const int64_t *sizes, int32_t index)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (index) {
        case 0: return n * ((rows + 255) / 256) * 4;
        default: return 0;
    }
}

static int64_t column_sums_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return ((n + 2047) / 2048) * ((rows + 255) / 256);
        case 1: return (n + 2047) / 2048;
        default: return 0;
    }
}

static int64_t column_sums_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (((((rows + 255) / 256) * 4 + rows * 4) * n) / noyau_maximum_i64(((n + 2047) / 2048) * ((rows + 255) / 256), 1)) + 1;
        case 1: return (((((rows + 255) / 256) * 4 + 4) * n) / noyau_maximum_i64((n + 2047) / 2048, 1)) + 1;
        default: return 0;
    }
}

static int32_t column_sums_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return column_sums_0(call, begin, end);
        case 1: return column_sums_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t column_sums_dtypes[] = {1, 1};
static const int32_t column_sums_ranks[] = {2, 1};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel column_sums_kernel = {
    "column_sums", 1, 1, 1, 2, 2, column_sums_dtypes, column_sums_ranks,
    column_sums_bind, column_sums_shape, column_sums_scratch_bytes, column_sums_extent, column_sums_item_bytes, column_sums_run,
};
