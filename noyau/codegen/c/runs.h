/* Runs of cells that are narrower than what is computed of them, widened to memory of the thread and narrowed from it: a
   vector by one instruction, in vectors as wide as those of the loops that read them (of two stores one load waits). */
#include <string.h>
#if defined(__AVX512F__)
#define NOYAU_CELLS 16
#elif defined(__AVX2__) && defined(__F16C__)
#define NOYAU_CELLS 8
#endif

#if defined(NOYAU_CELLS)
typedef float noyau_floats __attribute__((vector_size(4 * NOYAU_CELLS)));
typedef int32_t noyau_words __attribute__((vector_size(4 * NOYAU_CELLS)));
typedef short noyau_halves __attribute__((vector_size(2 * NOYAU_CELLS)));
#if NOYAU_CELLS == 16
#define NOYAU_WIDER(cells) __builtin_ia32_vcvtph2ps512_mask(cells, (noyau_floats){0}, -1, 4)
#define NOYAU_NARROWER(cells) __builtin_ia32_vcvtps2ph512_mask(cells, 0, (noyau_halves){0}, -1)
#else
#define NOYAU_WIDER(cells) __builtin_ia32_vcvtph2ps256(cells)
#define NOYAU_NARROWER(cells) __builtin_ia32_vcvtps2ph256(cells, 0)
#endif
/* gcc takes a vector of bytes apart for what clang makes one instruction of. */
#if defined(__clang__)
typedef uint8_t noyau_bytes __attribute__((vector_size(NOYAU_CELLS)));
#define NOYAU_OF_BYTES(cells) __builtin_convertvector(cells, noyau_words)
#else
typedef char noyau_chars __attribute__((vector_size(16)));
#if NOYAU_CELLS == 16
typedef noyau_chars noyau_bytes;
#define NOYAU_OF_BYTES(cells) __builtin_ia32_pmovzxbd512_mask(cells, (noyau_words){0}, -1)
#else
typedef long long noyau_bytes;
#define NOYAU_OF_BYTES(cells) \
    __builtin_ia32_pmovzxbd256((noyau_chars)(__attribute__((vector_size(16))) long long){cells, 0})
#endif
#endif
/* A vector of cells after the other, the last one of what is left and of zeros. */
#define NOYAU_VECTOR(narrow, wide, cells, converted) \
    { \
        narrow before = {0}; \
        memcpy(&before, from + at, (size_t)(cells) * sizeof *from); \
        const wide after = converted; \
        memcpy(to + at, &after, (size_t)(cells) * sizeof *to); \
    }
#define NOYAU_RUN(narrow, wide, converted, one) \
    int64_t at = 0; \
    for (; at + NOYAU_CELLS <= count; at += NOYAU_CELLS) \
        NOYAU_VECTOR(narrow, wide, NOYAU_CELLS, converted) \
    if (at < count) NOYAU_VECTOR(narrow, wide, count - at, converted)
#else
#define NOYAU_RUN(narrow, wide, converted, one) for (int64_t at = 0; at < count; ++at) to[at] = one(from[at]);
#endif

NOYAU_INLINE void noyau_widen_f16(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    NOYAU_RUN(noyau_halves, noyau_floats, NOYAU_WIDER(before), noyau_f16_to_f32)
}

NOYAU_INLINE void noyau_narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    NOYAU_RUN(noyau_floats, noyau_halves, NOYAU_NARROWER(before), noyau_f32_to_f16)
}

NOYAU_INLINE void noyau_round_f16(float *restrict to, const float *restrict from, int64_t count)
{
    NOYAU_RUN(noyau_floats, noyau_floats, NOYAU_WIDER(NOYAU_NARROWER(before)), noyau_f32_to_f16_to_f32)
}

NOYAU_INLINE void noyau_widen_bool(int32_t *restrict to, const uint8_t *restrict from, int64_t count)
{
    NOYAU_RUN(noyau_bytes, noyau_words, NOYAU_OF_BYTES(before), )
}
