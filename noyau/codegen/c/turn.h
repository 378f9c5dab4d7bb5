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
