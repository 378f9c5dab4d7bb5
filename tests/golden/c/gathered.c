/* the kernel gathered */

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

static int32_t gathered_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict table = call->buffers[0]; /* [words, n] */
    const int64_t *restrict ids = call->buffers[1]; /* [b, s] */
    float *restrict v5 = call->buffers[2]; /* [b, s, 1] */
    float *restrict v2 = call->buffers[3]; /* [b, s, n] */
    const int64_t words = call->sizes[0];
    const int64_t n = call->sizes[1];
    const int64_t b = call->sizes[2];
    const int64_t s = call->sizes[3];

    /* Items: b * s where !((n <= 15) & (32 <= (b * s))). */
    for (int64_t i1 = begin; i1 < end; ++i1) {
        const int64_t ids_i = ids[i1];
        const int64_t at = ids_i;
        if (at < 0 || at >= words) return NOYAU_INDEX_OUT_OF_BOUNDS;
        double v4_sum = 0.0;
        for (int64_t block = 0; block < n / 512; ++block) {
            float v4_lanes_sum[16] = {0};
            for (int64_t r1 = 0; r1 < 32; ++r1) {
                for (int64_t lane = 0; lane < 16; ++lane) {
                    const float table_i = table[at * n + block * 512 + r1 * 16 + lane];
                    const float v3 = table_i * table_i;
                    v4_lanes_sum[lane] += v3;
                }
            }
            NOYAU_LANES
            for (int64_t lane = 0; lane < 8; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 8];
            for (int64_t lane = 0; lane < 4; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 4];
            for (int64_t lane = 0; lane < 2; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 2];
            v4_lanes_sum[0] += v4_lanes_sum[1];
            v4_sum += (double)v4_lanes_sum[0];
        }
        float v4_lanes_sum[16] = {0};
        for (int64_t r1 = 0; r1 < (n % 512) / 16; ++r1) {
            for (int64_t lane = 0; lane < 16; ++lane) {
                const float table_i = table[at * n + (n / 512) * 512 + r1 * 16 + lane];
                const float v3 = table_i * table_i;
                v4_lanes_sum[lane] += v3;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < (n % 512) % 16; ++lane) {
            const float table_i = table[at * n + (n / 512) * 512 + ((n % 512) / 16) * 16 + lane];
            const float v3 = table_i * table_i;
            v4_lanes_sum[lane] += v3;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v4_lanes_sum[lane] += v4_lanes_sum[lane + 2];
        v4_lanes_sum[0] += v4_lanes_sum[1];
        v4_sum += (double)v4_lanes_sum[0];
        v5[i1] = (float)v4_sum;
        if (4194304LL <= (b * n * s * 4)) {
            for (int64_t i2w = 0; i2w < (n + 255) / 256; ++i2w) {
                const int64_t i2_count = noyau_minimum_i64(256, n - i2w * 256);
                if (i2_count == 256 && noyau_begins_line(&v2[i1 * n + i2w * 256])) {
                    for (int64_t i2l = 0; i2l < 8; ++i2l) {
                        float v2_tile_lines[32];
                        for (int64_t i2 = 0; i2 < 32; ++i2) v2_tile_lines[i2] = table[at * n + i2w * 256 + i2l * 32 + i2];
                        noyau_write_lines(&v2[i1 * n + i2w * 256 + i2l * 32], v2_tile_lines, sizeof v2_tile_lines);
                    }
                } else {
                    float v2_tile[256];
                    NOYAU_LANES
                    for (int64_t i2 = 0; i2 < i2_count; ++i2) v2_tile[i2] = table[at * n + i2w * 256 + i2];
                    noyau_write_around(&v2[i1 * n + i2w * 256], v2_tile, (size_t)i2_count * sizeof(*v2_tile));
                }
            }
        } else {
            NOYAU_LANES
            for (int64_t i2 = 0; i2 < n; ++i2) v2[i1 * n + i2] = table[at * n + i2];
        }
    }
    noyau_written_around();
    return NOYAU_OK;
}

static int32_t gathered_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict table = call->buffers[0]; /* [words, n] */
    const int64_t *restrict ids = call->buffers[1]; /* [b, s] */
    float *restrict v5 = call->buffers[2]; /* [b, s, 1] */
    float *restrict v2 = call->buffers[3]; /* [b, s, n] */
    const int64_t words = call->sizes[0];
    const int64_t n = call->sizes[1];
    const int64_t b = call->sizes[2];
    const int64_t s = call->sizes[3];

    float *restrict v2_rows_of_8 = noyau_take((size_t)(n * 32) * sizeof(*v2_rows_of_8));
    if (!v2_rows_of_8) {
        return NOYAU_OUT_OF_MEMORY;
    }
    /* Items: (b * s + 31) / 32 where (n <= 15) & (32 <= (b * s)). */
    for (int64_t i1t = begin; i1t < end; ++i1t) {
        const int64_t length = noyau_minimum_i64(32, b * s - i1t * 32);
        float v4_sum[32];
        NOYAU_LANES
        for (int64_t i1 = 0; i1 < length; ++i1) {
            const int64_t ids_i = ids[i1t * 32 + i1];
            const int64_t at = ids_i;
            if (at < 0 || at >= words) { noyau_give_back(v2_rows_of_8); return NOYAU_INDEX_OUT_OF_BOUNDS; }
            v4_sum[i1] = 0.0f;
        }
        for (int64_t r1 = 0; r1 < n; ++r1) {
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < length; ++i1) {
                const int64_t ids_i = ids[i1t * 32 + i1];
                const int64_t at = ids_i;
                const float table_i = table[at * n + r1];
                const float v3 = table_i * table_i;
                v4_sum[i1] += v3;
            }
        }
        NOYAU_LANES
        for (int64_t i1 = 0; i1 < length; ++i1) v5[i1t * 32 + i1] = v4_sum[i1];
        for (int64_t i2 = 0; i2 < n; ++i2) {
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < length; ++i1) {
                const int64_t ids_i = ids[i1t * 32 + i1];
                const int64_t at = ids_i;
                v2_rows_of_8[i2 * 32 + i1] = table[at * n + i2];
            }
        }
        noyau_turn(&v2[i1t * n * 32], n, &v2_rows_of_8[0], 32, n, length);
    }
    noyau_give_back(v2_rows_of_8);
    return NOYAU_OK;
}

static int32_t gathered_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t words = shapes[0][0];
    sizes[0] = words;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    const int64_t b = shapes[1][0];
    sizes[2] = b;
    const int64_t s = shapes[1][1];
    sizes[3] = s;
    return 0;
}

static void gathered_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t n = sizes[1];
    const int64_t b = sizes[2];
    const int64_t s = sizes[3];
    switch (output) {
        case 0: dims[0] = b; dims[1] = s; dims[2] = 1; break;
        case 1: dims[0] = b; dims[1] = s; dims[2] = n; break;
        default: break;
    }
}

static int64_t gathered_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t gathered_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t n = sizes[1];
    const int64_t b = sizes[2];
    const int64_t s = sizes[3];
    switch (launch) {
        case 0: return (!((n <= 15) & (32 <= (b * s)))) ? b * s : 0;
        case 1: return ((n <= 15) & (32 <= (b * s))) ? (b * s + 31) / 32 : 0;
        default: return 0;
    }
}

static int64_t gathered_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t n = sizes[1];
    const int64_t b = sizes[2];
    const int64_t s = sizes[3];
    switch (launch) {
        case 0: return n * 4 + 13;
        case 1: return ((((n * 4 + 12) * s) * b) / noyau_maximum_i64((b * s + 31) / 32, 1)) + 1;
        default: return 0;
    }
}

static int32_t gathered_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return gathered_0(call, begin, end);
        case 1: return gathered_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t gathered_dtypes[] = {1, 7, 1, 1};
static const int32_t gathered_ranks[] = {2, 2, 3, 3};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel gathered_kernel = {
    "gathered", 2, 2, 0, 2, 4, gathered_dtypes, gathered_ranks,
    gathered_bind, gathered_shape, gathered_scratch_bytes, gathered_extent, gathered_item_bytes, gathered_run,
};
