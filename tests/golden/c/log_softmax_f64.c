/* the kernel log_softmax_f64 */

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

#include <math.h>
#include <stdint.h>

/* Always: a call that is left in a loop keeps it from being vectorised. */
#define NOYAU_INLINE static inline __attribute__((always_inline))

/* e^(most - rest) as high + *low, for |most| <= log(2)/2 and a rest below its last bits: e^r is 1 + r + r^2 p(r),
   p minimax, where 1 + r is high and what it was rounded by goes to low. */
NOYAU_INLINE double noyau_exp_reduced_f64(double most, double rest, double *low) {
    const double r = most - rest;
    double p = 2.511554176208322e-8;
    p = p * r + 2.76265487794339e-7;
    p = p * r + 2.755722477418294e-6;
    p = p * r + 2.4801503946616203e-5;
    p = p * r + 0.00019841269906335115;
    p = p * r + 0.0013888888932724966;
    p = p * r + 0.0083333333333132;
    p = p * r + 0.041666666666572906;
    p = p * r + 0.16666666666666688;
    p = p * r + 0.5000000000000006;
    const double high = 1 + most;
    *low = (most - (high - 1)) + (p * (r * r) - rest);
    return high;
}

/* e^x as 2^n (high + *low), n in shifted as noyau_scale_f64 has it; log(2) in two parts. */
NOYAU_INLINE double noyau_exp_parts_f64(double x, double *low, double *shifted) {
    *shifted = x * 1.4426950408889634 + (0x1.8p52 + 2046);
    const double n = *shifted - (0x1.8p52 + 2046);
    double rest;
    const double high = noyau_exp_reduced_f64(x - n * 0x1.62e42fefa38p-1, n * 0x1.ef35793c7673p-45, &rest);
    *low = rest;
    return high;
}

NOYAU_INLINE uint64_t noyau_bits_f64(double x) {
    union { double value; uint64_t bits; } cell = {x};
    return cell.bits;
}

NOYAU_INLINE double noyau_from_bits_f64(uint64_t x) {
    union { uint64_t bits; double value; } cell = {x};
    return cell.value;
}

/* value 2^n, where shifted is n + 2046 + 1.5 2^52: as noyau_scale_f32. */
NOYAU_INLINE double noyau_scale_f64(double value, double shifted) {
    const uint64_t bits = noyau_bits_f64(shifted), half = bits >> 1;
    return value * noyau_from_bits_f64(half << 52) * noyau_from_bits_f64((bits - half) << 52);
}

/* e^x. 0.8 ulp. */
NOYAU_INLINE double noyau_exp_f64(double x) {
    double low, shifted;
    const double high = noyau_exp_parts_f64(x, &low, &shifted);
    const double y = noyau_scale_f64(high + low, shifted);
    const double tail = x < -746 ? 0 : y;
    return x > 710 ? INFINITY : tail;
}

/* y, or what the logarithm of x is where that is no number. */
NOYAU_INLINE double noyau_log_ends_f64(double x, double y) {
    const double most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* log(1 + f) - f + half, with half = f^2 / 2: as noyau_wide_log, with more terms. */
NOYAU_INLINE double noyau_log_rest_f64(double f, double half) {
    const double s = f / (f + 2);
    const double z = s * s;
    double p = 0.14796007714623774;
    p = p * z + 0.15314050324702402;
    p = p * z + 0.1818356405404158;
    p = p * z + 0.2222219858558514;
    p = p * z + 0.2857142874217077;
    p = p * z + 0.3999999999941628;
    p = p * z + 0.6666666666666734;
    return s * (half + p * z);
}

/* f with x = 2^*n (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for 0 < x < infinity. */
NOYAU_INLINE double noyau_log_split_f64(double x, double *n) {
    const double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    const uint64_t bits = noyau_bits_f64(normal) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const double whole = noyau_from_bits_f64((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    *n = whole - (x < 0x1p-1022 ? 54 : 0);
    return noyau_from_bits_f64((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
}

/* n log(2) + log(1 + f), log(2) in two parts. 1.0 ulp. */
NOYAU_INLINE double noyau_log_f64(double x) {
    double n;
    const double f = noyau_log_split_f64(x, &n), half = 0.5 * f * f;
    const double low = noyau_log_rest_f64(f, half) + n * 0x1.ef35793c7673p-45;
    return noyau_log_ends_f64(x, n * 0x1.62e42fefa38p-1 - (half - low - f));
}

static inline int64_t noyau_maximum_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t noyau_minimum_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t log_softmax_f64_0(const noyau_call *call, int64_t begin, int64_t end)
{
    const double *restrict x = call->buffers[0]; /* [rows, n] */
    double *restrict v10 = call->buffers[1]; /* [rows, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: rows where !((n <= 64) & (32 <= rows)). */
    for (int64_t i0 = begin; i0 < end; ++i0) {
        double v1_max[32];
        int32_t v1_nan[32];
        for (int64_t lane = 0; lane < 32; ++lane) {
            v1_max[lane] = -INFINITY;
            v1_nan[lane] = 0;
        }
        for (int64_t r1 = 0; r1 < n / 32; ++r1) {
            for (int64_t lane = 0; lane < 32; ++lane) {
                const double x_i = x[i0 * n + r1 * 32 + lane];
                v1_max[lane] = v1_max[lane] > x_i ? v1_max[lane] : x_i;
                v1_nan[lane] |= (int32_t)(x_i != x_i);
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < n % 32; ++lane) {
            const double x_i = x[i0 * n + (n / 32) * 32 + lane];
            v1_max[lane] = v1_max[lane] > x_i ? v1_max[lane] : x_i;
            v1_nan[lane] |= (int32_t)(x_i != x_i);
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 16; ++lane) {
            v1_max[lane] = v1_max[lane] > v1_max[lane + 16] ? v1_max[lane] : v1_max[lane + 16];
            v1_nan[lane] |= v1_nan[lane + 16];
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) {
            v1_max[lane] = v1_max[lane] > v1_max[lane + 8] ? v1_max[lane] : v1_max[lane + 8];
            v1_nan[lane] |= v1_nan[lane + 8];
        }
        for (int64_t lane = 0; lane < 4; ++lane) {
            v1_max[lane] = v1_max[lane] > v1_max[lane + 4] ? v1_max[lane] : v1_max[lane + 4];
            v1_nan[lane] |= v1_nan[lane + 4];
        }
        for (int64_t lane = 0; lane < 2; ++lane) {
            v1_max[lane] = v1_max[lane] > v1_max[lane + 2] ? v1_max[lane] : v1_max[lane + 2];
            v1_nan[lane] |= v1_nan[lane + 2];
        }
        v1_max[0] = v1_max[0] > v1_max[1] ? v1_max[0] : v1_max[1];
        v1_nan[0] |= v1_nan[1];
        const double v1 = v1_nan[0] != 0 ? NAN : v1_max[0];
        double v6_sum = 0.0;
        for (int64_t block = 0; block < n / 512; ++block) {
            double v6_lanes_sum[16] = {0};
            for (int64_t r2 = 0; r2 < 32; ++r2) {
                NOYAU_PREFETCH(&x[(i0 + 1) * n + block * 512 + r2 * 16]);
                NOYAU_PREFETCH(&x[(i0 + 1) * n + block * 512 + r2 * 16 + 8]);
                for (int64_t lane = 0; lane < 16; ++lane) {
                    const double x_i = x[i0 * n + block * 512 + r2 * 16 + lane];
                    const double v4 = x_i - v1;
                    const double v5 = noyau_exp_f64(v4);
                    v6_lanes_sum[lane] += v5;
                }
            }
            NOYAU_LANES
            for (int64_t lane = 0; lane < 8; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 8];
            for (int64_t lane = 0; lane < 4; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 4];
            for (int64_t lane = 0; lane < 2; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 2];
            v6_lanes_sum[0] += v6_lanes_sum[1];
            v6_sum += v6_lanes_sum[0];
        }
        double v6_lanes_sum[16] = {0};
        for (int64_t r2 = 0; r2 < (n % 512) / 16; ++r2) {
            NOYAU_PREFETCH(&x[(i0 + 1) * n + (n / 512) * 512 + r2 * 16]);
            NOYAU_PREFETCH(&x[(i0 + 1) * n + (n / 512) * 512 + r2 * 16 + 8]);
            for (int64_t lane = 0; lane < 16; ++lane) {
                const double x_i = x[i0 * n + (n / 512) * 512 + r2 * 16 + lane];
                const double v4 = x_i - v1;
                const double v5 = noyau_exp_f64(v4);
                v6_lanes_sum[lane] += v5;
            }
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < (n % 512) % 16; ++lane) {
            const double x_i = x[i0 * n + (n / 512) * 512 + ((n % 512) / 16) * 16 + lane];
            const double v4 = x_i - v1;
            const double v5 = noyau_exp_f64(v4);
            v6_lanes_sum[lane] += v5;
        }
        NOYAU_LANES
        for (int64_t lane = 0; lane < 8; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 8];
        for (int64_t lane = 0; lane < 4; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 4];
        for (int64_t lane = 0; lane < 2; ++lane) v6_lanes_sum[lane] += v6_lanes_sum[lane + 2];
        v6_lanes_sum[0] += v6_lanes_sum[1];
        v6_sum += v6_lanes_sum[0];
        const double v6 = v6_sum;
        const double v8 = noyau_log_f64(v6);
        if (4194304LL <= (n * rows * 8)) {
            for (int64_t i1w = 0; i1w < (n + 255) / 256; ++i1w) {
                const int64_t i1_count = noyau_minimum_i64(256, n - i1w * 256);
                if (i1_count == 256 && noyau_begins_line(&v10[i0 * n + i1w * 256])) {
                    for (int64_t i1l = 0; i1l < 8; ++i1l) {
                        double v10_tile_lines[32];
                        for (int64_t i1 = 0; i1 < 32; ++i1) {
                            const double x_i = x[i0 * n + i1w * 256 + i1l * 32 + i1];
                            const double v4 = x_i - v1;
                            v10_tile_lines[i1] = v4 - v8;
                        }
                        noyau_write_lines(&v10[i0 * n + i1w * 256 + i1l * 32], v10_tile_lines, sizeof v10_tile_lines);
                    }
                } else {
                    double v10_tile[256];
                    NOYAU_LANES
                    for (int64_t i1 = 0; i1 < i1_count; ++i1) {
                        const double x_i = x[i0 * n + i1w * 256 + i1];
                        const double v4 = x_i - v1;
                        v10_tile[i1] = v4 - v8;
                    }
                    noyau_write_around(&v10[i0 * n + i1w * 256], v10_tile, (size_t)i1_count * sizeof(*v10_tile));
                }
            }
        } else {
            NOYAU_LANES
            for (int64_t i1 = 0; i1 < n; ++i1) {
                const double x_i = x[i0 * n + i1];
                const double v4 = x_i - v1;
                v10[i0 * n + i1] = v4 - v8;
            }
        }
    }
    noyau_written_around();
    return NOYAU_OK;
}

static int32_t log_softmax_f64_1(const noyau_call *call, int64_t begin, int64_t end)
{
    const double *restrict x = call->buffers[0]; /* [rows, n] */
    double *restrict v10 = call->buffers[1]; /* [rows, n] */
    const int64_t rows = call->sizes[0];
    const int64_t n = call->sizes[1];

    /* Items: (rows + 31) / 32 where (n <= 64) & (32 <= rows). */
    for (int64_t i0t = begin; i0t < end; ++i0t) {
        const int64_t length = noyau_minimum_i64(32, rows - i0t * 32);
        double v1_max[32];
        int32_t v1_nan[32];
        for (int64_t i0 = 0; i0 < 32; ++i0) {
            v1_max[i0] = -INFINITY;
            v1_nan[i0] = 0;
        }
        for (int64_t r1 = 0; r1 < n; ++r1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const double x_i = x[(i0t * 32 + i0) * n + r1];
                v1_max[i0] = v1_max[i0] > x_i ? v1_max[i0] : x_i;
                v1_nan[i0] |= (int32_t)(x_i != x_i);
            }
        }
        double v1_cell[32];
        double v6_sum[32];
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) {
            v1_cell[i0] = v1_nan[i0] != 0 ? NAN : v1_max[i0];
            v6_sum[i0] = 0.0;
        }
        for (int64_t r2 = 0; r2 < n; ++r2) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const double x_i = x[(i0t * 32 + i0) * n + r2];
                const double v4 = x_i - v1_cell[i0];
                const double v5 = noyau_exp_f64(v4);
                v6_sum[i0] += v5;
            }
        }
        double v8_cell[32];
        NOYAU_LANES
        for (int64_t i0 = 0; i0 < length; ++i0) {
            const double v6 = v6_sum[i0];
            v8_cell[i0] = noyau_log_f64(v6);
        }
        for (int64_t i1 = 0; i1 < n; ++i1) {
            NOYAU_LANES
            for (int64_t i0 = 0; i0 < length; ++i0) {
                const double x_i = x[(i0t * 32 + i0) * n + i1];
                const double v4 = x_i - v1_cell[i0];
                v10[(i0t * 32 + i0) * n + i1] = v4 - v8_cell[i0];
            }
        }
    }
    return NOYAU_OK;
}

static int32_t log_softmax_f64_bind(const int64_t *const *shapes, int64_t *sizes)
{
    const int64_t rows = shapes[0][0];
    sizes[0] = rows;
    const int64_t n = shapes[0][1];
    sizes[1] = n;
    return 0;
}

static void log_softmax_f64_shape(const int64_t *sizes, int32_t output, int64_t *dims)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (output) {
        case 0: dims[0] = rows; dims[1] = n; break;
        default: break;
    }
}

static int64_t log_softmax_f64_scratch_bytes(const int64_t *sizes, int32_t index)
{
    (void)sizes;
    (void)index;
    return 0;
}

static int64_t log_softmax_f64_extent(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return (!((n <= 64) & (32 <= rows))) ? rows : 0;
        case 1: return ((n <= 64) & (32 <= rows)) ? (rows + 31) / 32 : 0;
        default: return 0;
    }
}

static int64_t log_softmax_f64_item_bytes(const int64_t *sizes, int32_t launch)
{
    const int64_t rows = sizes[0];
    const int64_t n = sizes[1];
    switch (launch) {
        case 0: return n * 16 + 1;
        case 1: return ((n * rows * 16) / noyau_maximum_i64((rows + 31) / 32, 1)) + 1;
        default: return 0;
    }
}

static int32_t log_softmax_f64_run(const noyau_call *call, int64_t begin, int64_t end)
{
    switch (call->launch) {
        case 0: return log_softmax_f64_0(call, begin, end);
        case 1: return log_softmax_f64_1(call, begin, end);
        default: return NOYAU_OK;
    }
}

static const int32_t log_softmax_f64_dtypes[] = {11, 11};
static const int32_t log_softmax_f64_ranks[] = {2, 2};

#ifndef NOYAU_EXPORT
#define NOYAU_EXPORT
#endif
NOYAU_EXPORT const noyau_kernel log_softmax_f64_kernel = {
    "log_softmax_f64", 1, 1, 0, 2, 2, log_softmax_f64_dtypes, log_softmax_f64_ranks,
    log_softmax_f64_bind, log_softmax_f64_shape, log_softmax_f64_scratch_bytes, log_softmax_f64_extent, log_softmax_f64_item_bytes, log_softmax_f64_run,
};
