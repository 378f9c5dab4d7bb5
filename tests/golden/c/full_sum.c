/* the kernel full_sum */

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

static int32_t full_sum_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [n] */
    double *restrict v1_2_sum_of_block = call->buffers[2]; /* [(n + 65535) / 65536] */
    const int64_t n = call->sizes[0];

    /* Items: (n + 65535) / 65536. */
    for (int64_t block = begin; block < end; ++block) {
        const int64_t length = noyau_minimum_i64(65536, n - block * 65536);
        double v1_2_sum = 0.0;
        for (int64_t block_2 = 0; block_2 < length / 512; ++block_2) {
            float v1_2_lanes_sum[32] = {0};
            for (int64_t r1 = 0; r1 < 16; ++r1) {
                for (int64_t lane = 0; lane < 32; ++lane) {
                    const float x_i = x[block * 65536 + block_2 * 512 + r1 * 32 + lane];
                    v1_2_lanes_sum[lane] += x_i;
                }
            }
            NOYAU_LANES
            for (int64_t lane = 0; lane < 16; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 16];
            NOYAU_LANES
            for (int64_t lane = 0; lane < 8; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 8];
            for (int64_t lane = 0; lane < 4; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 4];
            for (int64_t lane = 0; lane < 2; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 2];
            v1_2_lanes_sum[0] += v1_2_lanes_sum[1];
            v1_2_sum += (double)v1_2_lanes_sum[0];
        }
        float v1_2_lanes_sum[32] = {0};
        for (int64_t r1 = 0; r1 < (length % 512) / 32; ++r1) {
            for (int64_t lane = 0; lane < 32; ++lane) {
                const float x_i = x[block * 65536 + (length / 512) * 512 + r1 * 32 + lane];
                v1_2_lanes_sum[lane] += x_i;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < (length % 512) % 32; ++lane) {
            const float x_i = x[block * 65536 + (length / 512) * 512 + ((length % 512) / 32) * 32 + lane];
            v1_2_lanes_sum[lane] += x_i;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 16; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 16];
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v1_2_lanes_sum[lane] += v1_2_lanes_sum[lane + 2];
        v1_2_lanes_sum[0] += v1_2_lanes_sum[1];
        v1_2_sum += (double)v1_2_lanes_sum[0];
        v1_2_sum_of_block[block] = v1_2_sum;
    }
    return NOYAU_OK;
}

static int32_t full_sum_1(const noyau_call *call, int64_t begin, int64_t end)
{
    float *restrict v1 = call->buffers[1]; /* [] */
    double *restrict v1_2_sum_of_block = call->buffers[2]; /* [(n + 65535) / 65536] */
    const int64_t n = call->sizes[0];

    /* One item. */
    for (int64_t item = begin; item < end; ++item) {
        double v1_2_sum = 0.0;
        for (int64_t block = 0; block < (n + 65535) / 65536; ++block) v1_2_sum += v1_2_sum_of_block[block];
        v1[0] = (float)v1_2_sum;
    }
    return NOYAU_OK;
}

static int32_t full_sum_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t n = shapes[0][0];
    sizes[0] = n;
    return 0;
}

static void full_sum_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    (void)dims;
    (void)sizes;
    switch (output) {
        case 0: break;
        default: break;
    }
}

static int64_t full_sum_scratch_bytes(const int64_t *sizes, int32_t index)
{
    const int64_t n = sizes[0];
    switch (index) {
        case 0: return ((n + 65535) / 65536) * 8;
        default: return 0;
    }
}

static int64_t full_sum_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t n = sizes[0];
    switch (launch) {
        case 0: return (n + 65535) / 65536;
        case 1: return 1;
        default: return 0;
    }
}

static int64_t full_sum_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t n = sizes[0];
    switch (launch) {
        case 0: return ((((n + 65535) / 65536) * 8 + n * 4) / noyau_maximum_i64((n + 65535) / 65536, 1)) + 1;
        case 1: return ((n + 65535) / 65536) * 8 + 5;
        default: return 0;
    }
}

static int32_t full_sum_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return full_sum_0(call, begin, end);
        case 1: return full_sum_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t full_sum_dtypes[] = {1, 1};
static const int32_t full_sum_ranks[] = {1, 0};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel full_sum_kernel = {
    "full_sum", 1, 1, 1, 2, 1, full_sum_dtypes, full_sum_ranks,
    full_sum_bind, full_sum_shape, full_sum_scratch_bytes, full_sum_extent, full_sum_item_bytes, full_sum_run,
};
