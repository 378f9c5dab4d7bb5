/* the kernel sum_of_i32 */

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

/* Memory of a thread, which begins with a line of 64 bytes: vectors that lie in two lines take as long as two. Before
   it stands what malloc gave, which is given back. */
static inline void *noyau_take(size_t bytes)
{
    char *taken = malloc(bytes + 64 + sizeof(void *));
    if (!taken) return NULL;
    char *line = taken + sizeof(void *);
    line += -(uintptr_t)line & 63;
    ((void **)line)[-1] = taken;
    return line;
}

static inline void noyau_give_back(void *line)
{
    if (line) free(((void **)line)[-1]);
}

/* Lines of cells of 4 bytes with their axes exchanged: eight lines of eight cells at a time in registers, where the
   compiler has a word for that. Lines lie `there` cells apart where they are written, `here` where they are read. */
#if defined(__AVX2__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define NOYAU_TURNS
#endif
#endif

#if defined(NOYAU_TURNS)
typedef int32_t noyau_eight __attribute__((vector_size(32)));
#define NOYAU_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#if defined(__clang__)
#define NOYAU_UNROLLED
#else /* gcc leaves such loops as they are, and what they go over in memory: that took twice as long */
#define NOYAU_UNROLLED _Pragma("GCC unroll 8")
#endif

static inline void noyau_turn_eight(char *restrict to, int64_t there, const char *restrict from, int64_t here)
{
    noyau_eight one[8], two[8];
    NOYAU_UNROLLED
    for (int i = 0; i < 8; ++i) __builtin_memcpy(&one[i], from + i * here * 4, 32);
    NOYAU_UNROLLED
    for (int i = 0; i < 8; i += 2) {
        two[i] = NOYAU_MIX(one[i], one[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        two[i + 1] = NOYAU_MIX(one[i], one[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    NOYAU_UNROLLED
    for (int i = 0; i < 8; i += 4) {
        NOYAU_UNROLLED
        for (int k = 0; k < 2; ++k) {
            one[i + 2 * k] = NOYAU_MIX(two[i + k], two[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            one[i + 2 * k + 1] = NOYAU_MIX(two[i + k], two[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    NOYAU_UNROLLED
    for (int i = 0; i < 4; ++i) {
        two[i] = NOYAU_MIX(one[i], one[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        two[i + 4] = NOYAU_MIX(one[i], one[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    NOYAU_UNROLLED
    for (int i = 0; i < 8; ++i) __builtin_memcpy(to + i * there * 4, &two[i], 32);
}
#endif

typedef int32_t __attribute__((may_alias)) noyau_word;

static inline void noyau_turn(
    void *restrict to, int64_t there, const void *restrict from, int64_t here, int64_t lines, int64_t cells)
{
    noyau_word *restrict columns = to;
    const noyau_word *restrict rows = from;
    int64_t line = 0;
#if defined(NOYAU_TURNS)
    for (; line + 8 <= lines; line += 8) {
        int64_t cell = 0;
        for (; cell + 8 <= cells; cell += 8)
            noyau_turn_eight((char *)(columns + cell * there + line), there, (const char *)(rows + line * here + cell), here);
        for (; cell < cells; ++cell)
            for (int at = 0; at < 8; ++at) columns[cell * there + line + at] = rows[(line + at) * here + cell];
    }
#endif
    for (; line < lines; ++line)
        for (int64_t cell = 0; cell < cells; ++cell) columns[cell * there + line] = rows[line * here + cell];
}

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t sum_of_i32_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const int32_t *restrict x = call->buffers[0]; /* [rows, n] */
    int32_t *restrict v1 = call->buffers[1]; /* [rows] */
    const int64_t n = call->sizes[1];

    /* Items: rows where !((n <= 24) & (32 <= rows)). */
    for (int64_t i0 = begin; i0 < end; ++i0) {
        int32_t v1_2_sum[16] = {0};
        for (int64_t r1 = 0; r1 < n / 16; ++r1) {
            for (int64_t lane = 0; lane < 16; ++lane) {
                const int32_t x_i = x[i0 * n + r1 * 16 + lane];
                v1_2_sum[lane] += x_i;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < n % 16; ++lane) {
            const int32_t x_i = x[i0 * n + (n / 16) * 16 + lane];
            v1_2_sum[lane] += x_i;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v1_2_sum[lane] += v1_2_sum[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v1_2_sum[lane] += v1_2_sum[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v1_2_sum[lane] += v1_2_sum[lane + 2];
        v1_2_sum[0] += v1_2_sum[1];
        v1[i0] = v1_2_sum[0];
    }
    return NOYAU_OK;
}

static int32_t sum_of_i32_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const int32_t *restrict x = call->buffers[0]; /* [rows, n] */
    int32_t *restrict v1 = call->buffers[1]; /* [rows] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    int32_t *restrict x_rows_of_0 = noyau_take((size_t)(n * 32) * sizeof(*x_rows_of_0));
    if (!x_rows_of_0) {
        return NOYAU_OUT_OF_MEMORY;
    }
    /* Items: (rows + 31) / 32 where (n <= 24) & (32 <= rows). */
    for (int64_t i0t = begin; i0t < end; ++i0t) {
        const int64_t length = noyau_minimum_i64(32, rows - i0t * 32);
        if (length < 32) {
            NOYAU_LANES
            for (int64_t zero_x_rows_of_0 = 0; zero_x_rows_of_0 < n * 32; ++zero_x_rows_of_0) {
                x_rows_of_0[zero_x_rows_of_0] = 0;
            }
        }
        noyau_turn(&x_rows_of_0[0], 32, &x[i0t * n * 32], n, length, n);
        int32_t v1_2_sum[32] = {0};
        for (int64_t r1 = 0; r1 < n; ++r1) {
            for (int64_t i0 = 0; i0 < 32; ++i0) {
                const int32_t x_2 = x_rows_of_0[r1 * 32 + i0];
                v1_2_sum[i0] += x_2;
            }
        }
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) v1[i0t * 32 + i0] = v1_2_sum[i0];
    }
    noyau_give_back(x_rows_of_0);
    return NOYAU_OK;
}

static int32_t sum_of_i32_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t rows = shapes[0][0];
    sizes[0] = rows;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    return 0;
}

static void sum_of_i32_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t rows = sizes[0];
    switch (output) {
        case 0: dims[0] = rows; break;
        default: break;
    }
}

static int64_t sum_of_i32_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t sum_of_i32_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (!((n <= 24) & (32 <= rows))) ? rows : 0;
        case 1: return ((n <= 24) & (32 <= rows)) ? (rows + 31) / 32 : 0;
        default: return 0;
    }
}

static int64_t sum_of_i32_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return n * 4 + 5;
        case 1: return (((n * 4 + 4) * rows) / noyau_maximum_i64((rows + 31) / 32, 1)) + 1;
        default: return 0;
    }
}

static int32_t sum_of_i32_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return sum_of_i32_0(call, begin, end);
        case 1: return sum_of_i32_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t sum_of_i32_dtypes[] = {6, 6};
static const int32_t sum_of_i32_ranks[] = {2, 1};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel sum_of_i32_kernel = {
    "sum_of_i32", 1, 1, 0, 2, 2, sum_of_i32_dtypes, sum_of_i32_ranks,
    sum_of_i32_bind, sum_of_i32_shape, sum_of_i32_scratch_bytes, sum_of_i32_extent, sum_of_i32_item_bytes, sum_of_i32_run,
};
