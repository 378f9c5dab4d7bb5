/* Loops that measure the machine: copies, reads, and the scalar functions in a plain loop. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The compiler must assume that memory is read between two rounds. */
#define NOYAU_LOOK() __asm__ volatile("" ::: "memory")

NOYAU_EXPORT void noyau_copy(const uint64_t *restrict from, uint64_t *restrict to, int64_t words, int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++) {
        memcpy(to, from, (size_t)words * sizeof *to);
        NOYAU_LOOK();
    }
}

NOYAU_EXPORT void noyau_copy_loop(const uint64_t *restrict from, uint64_t *restrict to, int64_t words, int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t i = 0; i < words; i++) {
            to[i] = from[i] ^ (uint64_t)round; /* so that it does not become a call of memcpy */
        }
        NOYAU_LOOK();
    }
}

NOYAU_EXPORT void noyau_copy_around(const uint64_t *restrict from, uint64_t *restrict to, int64_t words, int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++) {
        int64_t lines = 64 - (int64_t)((uintptr_t)to & 63); /* the target begins anywhere; lines do not */
        lines = (lines & 63) < words * 8 ? (lines & 63) / 8 : words;
        memcpy(to, from, (size_t)lines * sizeof *to);
        noyau_write_around(to + lines, from + lines, (size_t)(words - lines) * sizeof *to);
        noyau_written_around();
        NOYAU_LOOK();
    }
}

NOYAU_EXPORT void noyau_read(const uint64_t *restrict from, uint64_t *restrict to, int64_t words, int64_t rounds) {
    uint64_t lanes[32] = {0}; /* enough lanes that none waits for its own last addition */
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t i = 0; i + 32 <= words; i += 32) {
            for (int lane = 0; lane < 32; lane++) {
                lanes[lane] += from[i + lane];
            }
        }
        NOYAU_LOOK();
    }
    for (int lane = 0; lane < 32; lane++) {
        to[0] += lanes[lane];
    }
}
