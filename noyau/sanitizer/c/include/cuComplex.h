/* Complex numbers as pairs: the functions of cuComplex.h. */
#pragma once
#include "noyau_cuda.h"
#include <cmath>

#define NOYAU_COMPLEX(name, pair, cell, f)                                                                           \
    typedef pair name;                                                                                              \
    NOYAU_MADE name make_##name(cell re, cell im) { return name{re, im}; }                                       \
    NOYAU_MADE cell cuCreal##f(name a) { return a.x; }                                                           \
    NOYAU_MADE cell cuCimag##f(name a) { return a.y; }                                                           \
    NOYAU_MADE cell cuCabs##f(name a) { return std::hypot(a.x, a.y); }                                           \
    NOYAU_MADE name cuConj##f(name a) { return name{a.x, -a.y}; }                                                \
    NOYAU_MADE name cuCadd##f(name a, name b) { return name{a.x + b.x, a.y + b.y}; }                             \
    NOYAU_MADE name cuCsub##f(name a, name b) { return name{a.x - b.x, a.y - b.y}; }                             \
    NOYAU_MADE name cuCmul##f(name a, name b) { return name{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }     \
    NOYAU_MADE name cuCfma##f(name a, name b, name c) { return cuCadd##f(cuCmul##f(a, b), c); }                  \
    NOYAU_MADE name cuCdiv##f(name a, name b) {                                                                  \
        cell scale = std::fabs(b.x) + std::fabs(b.y), re = b.x / scale, im = b.y / scale;                           \
        cell x = a.x / scale, y = a.y / scale, size = re * re + im * im;                                            \
        return name{(x * re + y * im) / size, (y * re - x * im) / size};                                            \
    }
NOYAU_COMPLEX(cuFloatComplex, float2, float, f)
NOYAU_COMPLEX(cuDoubleComplex, double2, double, )
#undef NOYAU_COMPLEX

typedef cuFloatComplex cuComplex;
NOYAU_MADE cuComplex make_cuComplex(float re, float im) { return cuComplex{re, im}; }
NOYAU_MADE cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return cuDoubleComplex{a.x, a.y}; }
NOYAU_MADE cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return cuFloatComplex{(float)a.x, (float)a.y}; }
