#include <stdint.h>

/* Adds to one cell again and again, as a thread does with its own total in memory. */
__attribute__((visibility("default"))) void noyau_add_f32(volatile float *cell, int64_t times) {
    for (int64_t i = 0; i < times; i++) *cell += 1;
}
