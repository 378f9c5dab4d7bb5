/* the kernel any_of_bools */

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

static int32_t any_of_bools_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const uint8_t *restrict x = call->buffers[0]; /* [rows, n] */
    bool *restrict v1 = call->buffers[1]; /* [rows] */
    const int64_t n = call->sizes[1];

    /* Items: rows where !((n <= 15) & (32 <= rows)). */
    for (int64_t i0 = begin; i0 < end; ++i0) {
        bool v1_2_any[16] = {0};
        for (int64_t r1 = 0; r1 < n / 16; ++r1) {
            for (int64_t lane = 0; lane < 16; ++lane) {
                const bool x_i = x[i0 * n + r1 * 16 + lane];
                v1_2_any[lane] |= x_i;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < n % 16; ++lane) {
            const bool x_i = x[i0 * n + (n / 16) * 16 + lane];
            v1_2_any[lane] |= x_i;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v1_2_any[lane] |= v1_2_any[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v1_2_any[lane] |= v1_2_any[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v1_2_any[lane] |= v1_2_any[lane + 2];
        v1_2_any[0] |= v1_2_any[1];
        v1[i0] = v1_2_any[0];
    }
    return NOYAU_OK;
}

static int32_t any_of_bools_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const uint8_t *restrict x = call->buffers[0]; /* [rows, n] */
    bool *restrict v1 = call->buffers[1]; /* [rows] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: (rows + 31) / 32 where (n <= 15) & (32 <= rows). */
    for (int64_t i0t = begin; i0t < end; ++i0t) {
        const int64_t length = noyau_minimum_i64(32, rows - i0t * 32);
        bool v1_2_any[32] = {0};
        for (int64_t r1 = 0; r1 < n; ++r1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const bool x_i = x[(i0t * 32 + i0) * n + r1];
                v1_2_any[i0] |= x_i;
            }
        }
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) v1[i0t * 32 + i0] = v1_2_any[i0];
    }
    return NOYAU_OK;
}

static int32_t any_of_bools_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t rows = shapes[0][0];
    sizes[0] = rows;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    return 0;
}

static void any_of_bools_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t rows = sizes[0];
    switch (output) {
        case 0: dims[0] = rows; break;
        default: break;
    }
}

static int64_t any_of_bools_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t any_of_bools_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (!((n <= 15) & (32 <= rows))) ? rows : 0;
        case 1: return ((n <= 15) & (32 <= rows)) ? (rows + 31) / 32 : 0;
        default: return 0;
    }
}

static int64_t any_of_bools_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return n + 2;
        case 1: return (((n + 1) * rows) / noyau_maximum_i64((rows + 31) / 32, 1)) + 1;
        default: return 0;
    }
}

static int32_t any_of_bools_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return any_of_bools_0(call, begin, end);
        case 1: return any_of_bools_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t any_of_bools_dtypes[] = {9, 9};
static const int32_t any_of_bools_ranks[] = {2, 1};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel any_of_bools_kernel = {
    "any_of_bools", 1, 1, 0, 2, 2, any_of_bools_dtypes, any_of_bools_ranks,
    any_of_bools_bind, any_of_bools_shape, any_of_bools_scratch_bytes, any_of_bools_extent, any_of_bools_item_bytes, any_of_bools_run,
};
