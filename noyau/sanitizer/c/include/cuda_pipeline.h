/* Copies of one thread, which continue until it waits for them. */
#ifndef NOYAU_PIPELINE_H
#define NOYAU_PIPELINE_H
#include "noyau_cuda.h"
NOYAU_STATIC void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0) {
    noyau_copy_begin(to, from, (int64_t)bytes, (int64_t)zeros, NOYAU_PC);
}
NOYAU_STATIC void __pipeline_commit() { noyau_copy_commit(); }
NOYAU_STATIC void __pipeline_wait_prior(size_t left) { noyau_copy_wait((unsigned)left); }
#endif
