/* the kernel scattered_labels */

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

/* A hint to fetch a line of memory that is read soon, into the second cache: in the first one it would
   take the place of what is read now. */
#if defined(__GNUC__)
#define NOYAU_PREFETCH(cell) __builtin_prefetch(cell, 0, 2)
#else
#define NOYAU_PREFETCH(cell) ((void)0)
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

/* e^x for x <= 0, and up to 66, as right as for any x, by one factor, which may be denormal; at the limit it is 0. The
   factor comes of the bits and a constant, while the slope is computed. */
NOYAU_INLINE float noyau_exp_negative_f32(float x) {
    const float t = noyau_from_limit_f32(x, -110.2f);
    const float shifted = t * 1.442695f + (0x1.8p23f + 159);
    const float n = shifted - (0x1.8p23f + 159);
    const float r = t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const float scale = noyau_from_bits_f32(noyau_bits_f32(shifted) << 23) * 0x1p-32f;
    return noyau_exp_slope_f32(r) * (r * scale) + scale;
}

/* part / whole for 0 <= part <= 1 <= whole: a product with the inverse, which a loop over parts computes once, and what
   that leaves over in another one. Where products are fused with sums it has the quotient's bits, but for denormals;
   else it is within 2 units of its last place. */
NOYAU_INLINE float noyau_share_f32(float part, float whole) {
    const float inverse = 1 / whole;
    const float near = part * inverse;
    return near + (part - near * whole) * inverse;
}

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t scattered_labels_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [rows, n] */
    const int64_t *restrict ids = call->buffers[1]; /* [rows] */
    const float *restrict less = call->buffers[2]; /* [rows] */
    float *restrict v14 = call->buffers[3]; /* [rows, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    float *restrict kept_v7_2 = noyau_take((size_t)n * sizeof(*kept_v7_2));
    if (!kept_v7_2) {
        return NOYAU_OUT_OF_MEMORY;
    }
    /* Items: rows where !((n <= 64) & (32 <= rows)). */
    for (int64_t i0 = begin; i0 < end; ++i0) {
        const int64_t ids_i = ids[i0];
        const int64_t at = 0 < n ? ids_i : 0LL;
        if (0 < n) {
            if (at < 0 || at >= n) { noyau_give_back(kept_v7_2); return NOYAU_INDEX_OUT_OF_BOUNDS; }
        }
        float v3_max[32];
        int32_t v3_nan[32];
        for (int64_t lane = 0; lane < 32; ++lane) {
            v3_max[lane] = -INFINITY;
            v3_nan[lane] = 0;
        }
        for (int64_t r1 = 0; r1 < n / 32; ++r1) {
            for (int64_t lane = 0; lane < 32; ++lane) {
                const float x_i = x[i0 * n + r1 * 32 + lane];
                v3_max[lane] = v3_max[lane] > x_i ? v3_max[lane] : x_i;
                v3_nan[lane] |= (int32_t)(x_i != x_i);
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < n % 32; ++lane) {
            const float x_i = x[i0 * n + (n / 32) * 32 + lane];
            v3_max[lane] = v3_max[lane] > x_i ? v3_max[lane] : x_i;
            v3_nan[lane] |= (int32_t)(x_i != x_i);
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 16; ++lane) {
            v3_max[lane] = v3_max[lane] > v3_max[lane + 16] ? v3_max[lane] : v3_max[lane + 16];
            v3_nan[lane] |= v3_nan[lane + 16];
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) {
            v3_max[lane] = v3_max[lane] > v3_max[lane + 8] ? v3_max[lane] : v3_max[lane + 8];
            v3_nan[lane] |= v3_nan[lane + 8];
        }
        for (int64_t lane = 0; lane < 4; ++lane) {
            v3_max[lane] = v3_max[lane] > v3_max[lane + 4] ? v3_max[lane] : v3_max[lane + 4];
            v3_nan[lane] |= v3_nan[lane + 4];
        }
        for (int64_t lane = 0; lane < 2; ++lane) {
            v3_max[lane] = v3_max[lane] > v3_max[lane + 2] ? v3_max[lane] : v3_max[lane + 2];
            v3_nan[lane] |= v3_nan[lane + 2];
        }
        v3_max[0] = v3_max[0] > v3_max[1] ? v3_max[0] : v3_max[1];
        v3_nan[0] |= v3_nan[1];
        const float v3 = v3_nan[0] != 0 ? NAN : v3_max[0];
        double v8_sum = 0.0;
        for (int64_t block = 0; block < n / 512; ++block) {
            float v8_lanes_sum[16] = {0};
            for (int64_t r2 = 0; r2 < 32; ++r2) {
                NOYAU_PREFETCH(&x[(i0 + 1) * n + block * 512 + r2 * 16]);
                NOYAU_LANES
                for (int64_t lane = 0; lane < 16; ++lane) {
                    const float x_i = x[i0 * n + block * 512 + r2 * 16 + lane];
                    const float v6 = x_i - v3;
                    const float v7 = noyau_exp_negative_f32(v6);
                    kept_v7_2[block * 512 + r2 * 16 + lane] = v7;
                    v8_lanes_sum[lane] += v7;
                }
            }
            NOYAU_LANES
            for (int64_t lane = 0; lane < 8; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 8];
            for (int64_t lane = 0; lane < 4; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 4];
            for (int64_t lane = 0; lane < 2; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 2];
            v8_lanes_sum[0] += v8_lanes_sum[1];
            v8_sum += (double)v8_lanes_sum[0];
        }
        float v8_lanes_sum[16] = {0};
        for (int64_t r2 = 0; r2 < (n % 512) / 16; ++r2) {
            NOYAU_PREFETCH(&x[(i0 + 1) * n + (n / 512) * 512 + r2 * 16]);
            NOYAU_LANES
            for (int64_t lane = 0; lane < 16; ++lane) {
                const float x_i = x[i0 * n + (n / 512) * 512 + r2 * 16 + lane];
                const float v6 = x_i - v3;
                const float v7 = noyau_exp_negative_f32(v6);
                kept_v7_2[(n / 512) * 512 + r2 * 16 + lane] = v7;
                v8_lanes_sum[lane] += v7;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < (n % 512) % 16; ++lane) {
            const float x_i = x[i0 * n + (n / 512) * 512 + ((n % 512) / 16) * 16 + lane];
            const float v6 = x_i - v3;
            const float v7 = noyau_exp_negative_f32(v6);
            kept_v7_2[(n / 512) * 512 + ((n % 512) / 16) * 16 + lane] = v7;
            v8_lanes_sum[lane] += v7;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v8_lanes_sum[lane] += v8_lanes_sum[lane + 2];
        v8_lanes_sum[0] += v8_lanes_sum[1];
        v8_sum += (double)v8_lanes_sum[0];
        const float v8 = (float)v8_sum;
        const float less_i = less[i0];
        const float v12 = -less_i;
        if (4194304LL <= (n * rows * 4)) {
            for (int64_t i1w = 0; i1w < (n + 255) / 256; ++i1w) {
                const int64_t i1_count = noyau_minimum_i64(256, n - i1w * 256);
                if (i1_count == 256 && noyau_begins_line(&v14[i0 * n + i1w * 256])) {
                    for (int64_t i1l = 0; i1l < 8; ++i1l) {
                        float v14_tile_lines[32];
                        for (int64_t i1 = 0; i1 < 32; ++i1) {
                            const float v7 = kept_v7_2[i1w * 256 + i1l * 32 + i1];
                            const float v11 = noyau_share_f32(v7, v8);
                            const float v13 = (i1w * 256 + i1l * 32 + i1) == at ? (v11 + v12) : v11;
                            v14_tile_lines[i1] = v13 * v13;
                        }
                        noyau_write_lines(&v14[i0 * n + i1w * 256 + i1l * 32], v14_tile_lines, sizeof v14_tile_lines);
                    }
                } else {
                    float v14_tile[256];
                    NOYAU_LANES
                    for (int64_t i1 = 0; i1 < i1_count; ++i1) {
                        const float v7 = kept_v7_2[i1w * 256 + i1];
                        const float v11 = noyau_share_f32(v7, v8);
                        const float v13 = (i1w * 256 + i1) == at ? (v11 + v12) : v11;
                        v14_tile[i1] = v13 * v13;
                    }
                    noyau_write_around(&v14[i0 * n + i1w * 256], v14_tile, (size_t)i1_count * sizeof(*v14_tile));
                }
            }
        } else {
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < n; ++i1) {
                const float v7 = kept_v7_2[i1];
                const float v11 = v7 / v8;
                const float v13 = i1 == at ? (v11 + v12) : v11;
                v14[i0 * n + i1] = v13 * v13;
            }
        }
    }
    noyau_give_back(kept_v7_2);
    noyau_written_around();
    return NOYAU_OK;
}

static int32_t scattered_labels_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const float *restrict x = call->buffers[0]; /* [rows, n] */
    const int64_t *restrict ids = call->buffers[1]; /* [rows] */
    const float *restrict less = call->buffers[2]; /* [rows] */
    float *restrict v14 = call->buffers[3]; /* [rows, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    float *restrict x_rows_of_0 = noyau_take((size_t)(n * 32) * sizeof(*x_rows_of_0));
    float *restrict kept_v7_2 = noyau_take((size_t)(n * 32) * sizeof(*kept_v7_2));
    float *restrict v14_rows_of_16 = noyau_take((size_t)(n * 32) * sizeof(*v14_rows_of_16));
    if (!x_rows_of_0 || !kept_v7_2 || !v14_rows_of_16) {
        noyau_give_back(x_rows_of_0);
        noyau_give_back(kept_v7_2);
        noyau_give_back(v14_rows_of_16);
        return NOYAU_OUT_OF_MEMORY;
    }
    /* Items: (rows + 31) / 32 where (n <= 64) & (32 <= rows). */
    for (int64_t i0t = begin; i0t < end; ++i0t) {
        const int64_t length = noyau_minimum_i64(32, rows - i0t * 32);
        noyau_turn(&x_rows_of_0[0], 32, &x[i0t * n * 32], n, length, n);
        float v3_max[32];
        int32_t v3_nan[32];
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) {
            const int64_t ids_i = ids[i0t * 32 + i0];
            const int64_t at = 0 < n ? ids_i : 0LL;
            if (0 < n) {
                if (at < 0 || at >= n) { noyau_give_back(x_rows_of_0); noyau_give_back(kept_v7_2); noyau_give_back(v14_rows_of_16); return NOYAU_INDEX_OUT_OF_BOUNDS; }
            }
            v3_max[i0] = -INFINITY;
            v3_nan[i0] = 0;
        }
        for (int64_t r1 = 0; r1 < n; ++r1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const float x_2 = x_rows_of_0[r1 * 32 + i0];
                v3_max[i0] = v3_max[i0] > x_2 ? v3_max[i0] : x_2;
                v3_nan[i0] |= (int32_t)(x_2 != x_2);
            }
        }
        float v3_cell[32];
        float v8_sum[32];
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) {
            v3_cell[i0] = v3_nan[i0] != 0 ? NAN : v3_max[i0];
            v8_sum[i0] = 0.0f;
        }
        for (int64_t r2 = 0; r2 < n; ++r2) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const float x_2 = x_rows_of_0[r2 * 32 + i0];
                const float v6 = x_2 - v3_cell[i0];
                const float v7 = noyau_exp_negative_f32(v6);
                kept_v7_2[r2 * 32 + i0] = v7;
                v8_sum[i0] += v7;
            }
        }
        float v8_cell[32];
        float v8_inverse_cell[32];
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) {
            v8_cell[i0] = v8_sum[i0];
            v8_inverse_cell[i0] = 1.0f / v8_cell[i0];
        }
        for (int64_t i1 = 0; i1 < n; ++i1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const int64_t ids_i = ids[i0t * 32 + i0];
                const int64_t at = 0 < n ? ids_i : 0LL;
                const float less_i = less[i0t * 32 + i0];
                const float v12 = -less_i;
                const float v7 = kept_v7_2[i1 * 32 + i0];
                const float v11 = (v7 * v8_inverse_cell[i0]) + ((v7 - ((v7 * v8_inverse_cell[i0]) * v8_cell[i0])) * v8_inverse_cell[i0]);
                const float v13 = i1 == at ? (v11 + v12) : v11;
                v14_rows_of_16[i1 * 32 + i0] = v13 * v13;
            }
        }
        noyau_turn(&v14[i0t * n * 32], n, &v14_rows_of_16[0], 32, n, length);
    }
    noyau_give_back(x_rows_of_0);
    noyau_give_back(kept_v7_2);
    noyau_give_back(v14_rows_of_16);
    return NOYAU_OK;
}

static int32_t scattered_labels_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t rows = shapes[0][0];
    sizes[0] = rows;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    if (shapes[1][0] != rows) return 2;
    if (shapes[2][0] != rows) return 3;
    return 0;
}

static void scattered_labels_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (output) {
        case 0: dims[0] = rows; dims[1] = n; break;
        default: break;
    }
}

static int64_t scattered_labels_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t scattered_labels_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (!((n <= 64) & (32 <= rows))) ? rows : 0;
        case 1: return ((n <= 64) & (32 <= rows)) ? (rows + 31) / 32 : 0;
        default: return 0;
    }
}

static int64_t scattered_labels_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return n * 8 + 13;
        case 1: return (((n * 8 + 12) * rows) / noyau_maximum_i64((rows + 31) / 32, 1)) + 1;
        default: return 0;
    }
}

static int32_t scattered_labels_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return scattered_labels_0(call, begin, end);
        case 1: return scattered_labels_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t scattered_labels_dtypes[] = {1, 7, 1, 1};
static const int32_t scattered_labels_ranks[] = {2, 1, 1, 2};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel scattered_labels_kernel = {
    "scattered_labels", 3, 1, 0, 2, 2, scattered_labels_dtypes, scattered_labels_ranks,
    scattered_labels_bind, scattered_labels_shape, scattered_labels_scratch_bytes, scattered_labels_extent, scattered_labels_item_bytes, scattered_labels_run,
};
