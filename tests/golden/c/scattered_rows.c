/* the kernel scattered_rows */

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

/* Cells that are not read again soon, written around the caches where the processor can: whole lines of 64 bytes. The
   cells before the first one and after the last go through the caches, and all do where they are few and do not begin
   with a line. By the compiler's own functions: the headers that name them take a third of a second to compile. */
#include <string.h>
#if defined(__AVX__)
typedef long long noyau_vector __attribute__((vector_size(32)));
#elif defined(__SSE2__)
typedef long long noyau_vector __attribute__((vector_size(16)));
#endif
#if defined(__SSE2__) && defined(__clang__)
#define NOYAU_AROUND(to, cells) __builtin_nontemporal_store(cells, to)
#elif defined(__AVX__) && defined(__GNUC__)
#define NOYAU_AROUND(to, cells) __builtin_ia32_movntdq256(to, cells)
#elif defined(__SSE2__) && defined(__GNUC__)
#define NOYAU_AROUND(to, cells) __builtin_ia32_movntdq(to, cells)
#endif

static inline void noyau_write_around(void *restrict to, const void *restrict from, size_t bytes)
{
    char *line = to;
    const char *cells = from;
#if defined(NOYAU_AROUND)
    const size_t before = -(uintptr_t)to & 63;
    const int whole = !before || bytes >= 512;
    const size_t tile = bytes;
    if (before && whole) {
        memcpy(line, cells, before);
        line += before, cells += before, bytes -= before;
    }
    for (; whole && bytes >= 64; line += 64, cells += 64, bytes -= 64) {
        for (size_t at = 0; at < 64; at += sizeof(noyau_vector)) {
            noyau_vector vector;
            memcpy(&vector, cells + at, sizeof vector);
            NOYAU_AROUND((noyau_vector *)(line + at), vector);
        }
    }
    if (!bytes) return; /* a call that copies nothing takes as long as a line */
    if (tile >= 1024) __builtin_prefetch(line + tile, 1); /* the line where the next tile ends, which waits for memory */
#endif
    memcpy(line, cells, bytes);
}

/* Whether a line of 64 bytes begins there, and such lines, of a known number of bytes: the compiler may have them in
   registers. */
static inline int noyau_begins_line(const void *to)
{
#if defined(NOYAU_AROUND)
    return !((uintptr_t)to & 63);
#else
    (void)to;
    return 0;
#endif
}

static inline __attribute__((always_inline))
void noyau_write_lines(void *restrict to, const void *restrict from, size_t bytes)
{
#if defined(NOYAU_AROUND)
    for (size_t at = 0; at < bytes; at += sizeof(noyau_vector)) {
        noyau_vector vector;
        memcpy(&vector, (const char *)from + at, sizeof vector);
        NOYAU_AROUND((noyau_vector *)((char *)to + at), vector);
    }
#else
    memcpy(to, from, bytes);
#endif
}

/* After the last of them, before another thread is told that they are there. */
static inline void noyau_written_around(void)
{
#if defined(NOYAU_AROUND)
    __builtin_ia32_sfence();
#endif
}

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t scattered_rows_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict data = call->buffers[0]; /* [words, n] */
    float *restrict v6 = call->buffers[4]; /* [words, n] */
    const int64_t words = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: (n * words + 255) / 256. */
    for (int64_t i1w = begin; i1w < end; ++i1w) {
        const int64_t i1_count = noyau_minimum_i64(256, n * words - i1w * 256);
        if (4194304LL <= (n * words * 4)) {
            if (i1_count == 256 && noyau_begins_line(&v6[i1w * 256])) {
                for (int64_t i1l = 0; i1l < 8; ++i1l) {
                    float v6_tile_lines[32];
                    for (int64_t i1 = 0; i1 < 32; ++i1) v6_tile_lines[i1] = data[i1w * 256 + i1l * 32 + i1];
                    noyau_write_lines(&v6[i1w * 256 + i1l * 32], v6_tile_lines, sizeof v6_tile_lines);
                }
            } else {
                float v6_tile[256];
                NOYAU_LANES
                for (int64_t i1 = 0; i1 < i1_count; ++i1) v6_tile[i1] = data[i1w * 256 + i1];
                noyau_write_around(&v6[i1w * 256], v6_tile, (size_t)i1_count * sizeof(*v6_tile));
            }
        } else {
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < i1_count; ++i1) v6[i1w * 256 + i1] = data[i1w * 256 + i1];
        }
    }
    noyau_written_around();
    return NOYAU_OK;
}

static int32_t scattered_rows_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const int64_t *restrict ids = call->buffers[1]; /* [rows] */
    const float *restrict scale = call->buffers[2]; /* [rows] */
    const float *restrict x = call->buffers[3]; /* [rows, n] */
    float *restrict v6 = call->buffers[4]; /* [words, n] */
    const int64_t words = call->sizes[0];
    const int64_t n = call->sizes[1];
    const int64_t rows = call->sizes[2];

    /* Items: (n + 1023) / 1024. */
    for (int64_t i1t = begin; i1t < end; ++i1t) {
        for (int64_t i0 = 0; i0 < rows; ++i0) {
            const int64_t ids_i = ids[i0];
            const int64_t at = ids_i;
            if (at < 0 || at >= words) return NOYAU_INDEX_OUT_OF_BOUNDS;
            const float scale_i = scale[i0];
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < noyau_minimum_i64(1024, n - i1t * 1024); ++i1) {
                const float x_i = x[i0 * n + i1t * 1024 + i1];
                const float v5 = scale_i * x_i;
                v6[at * n + i1t * 1024 + i1] += v5;
            }
        }
    }
    return NOYAU_OK;
}

static int32_t scattered_rows_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t words = shapes[0][0];
    sizes[0] = words;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    const int64_t rows = shapes[1][0];
    sizes[2] = rows;
    if (shapes[2][0] != rows) return 3;
    if (shapes[3][0] != rows) return 4;
    if (shapes[3][1] != n) return 4;
    return 0;
}

static void scattered_rows_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t words = sizes[0];
    const int64_t n = sizes[1];
    switch (output) {
        case 0: dims[0] = words; dims[1] = n; break;
        default: break;
    }
}

static int64_t scattered_rows_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t scattered_rows_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t words = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (n * words + 255) / 256;
        case 1: return (n + 1023) / 1024;
        default: return 0;
    }
}

static int64_t scattered_rows_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t words = sizes[0];
    const int64_t n = sizes[1];
    const int64_t rows = sizes[2];
    switch (launch) {
        case 0: return ((n * words * 8) / noyau_maximum_i64((n * words + 255) / 256, 1)) + 1;
        case 1: return (((rows * 4 + words * 4) * n + rows * 12) / noyau_maximum_i64((n + 1023) / 1024, 1)) + 1;
        default: return 0;
    }
}

static int32_t scattered_rows_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return scattered_rows_0(call, begin, end);
        case 1: return scattered_rows_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t scattered_rows_dtypes[] = {1, 7, 1, 1, 1};
static const int32_t scattered_rows_ranks[] = {2, 1, 1, 2, 2};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel scattered_rows_kernel = {
    "scattered_rows", 4, 1, 0, 2, 3, scattered_rows_dtypes, scattered_rows_ranks,
    scattered_rows_bind, scattered_rows_shape, scattered_rows_scratch_bytes, scattered_rows_extent, scattered_rows_item_bytes, scattered_rows_run,
};
