/* Bfloat16: the upper half of a float. */
#ifndef NOYAU_BF16_H
#define NOYAU_BF16_H
#include "noyau_short_floats.h"

struct noyau_bfloat16_kind {
    NOYAU_UNSEEN static float value_of(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
    NOYAU_UNSEEN static uint16_t bits_of(float value) {
        const uint32_t bits = __float_as_uint(value);
        if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
        return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
};
NOYAU_KIND(noyau_bfloat16_kind, __nv_bfloat16, bfloat16, bfloat162)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
NOYAU_MADE nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
#endif
