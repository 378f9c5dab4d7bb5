/* Copies of one thread, done at once. */
#ifndef NOYAU_PIPELINE_H
#define NOYAU_PIPELINE_H
#include "noyau_cuda.h"
static inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0) {
    for (size_t i = 0; i < bytes; i += 4) *(unsigned *)((char *)to + i) = i < bytes - zeros ? *(const unsigned *)((const char *)from + i) : 0;
}
static inline void __pipeline_commit() {}
static inline void __pipeline_wait_prior(size_t) {}
#endif
