/* Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_floor_f32(float x) {
    return floorf(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE double noyau_floor_f64(double x) {
    return floor(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_ceil_f32(float x) {
    return ceilf(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE double noyau_ceil_f64(double x) {
    return ceil(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_trunc_f32(float x) {
    return truncf(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE double noyau_trunc_f64(double x) {
    return trunc(x);
}

/* Halves go to the even neighbour. 0.0 ulp. */
NOYAU_INLINE float noyau_round_even_f32(float x) {
    return rintf(x);
}

/* Halves go to the even neighbour. 0.0 ulp. */
NOYAU_INLINE double noyau_round_even_f64(double x) {
    return rint(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_abs_f32(float x) {
    return fabsf(x);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE double noyau_abs_f64(double x) {
    return fabs(x);
}

/* -1, 0 (also for -0) or 1; a NaN stays NaN. 0.0 ulp. */
NOYAU_INLINE float noyau_sign_f32(float x) {
    return x > 0 ? 1 : x < 0 ? -1 : x + 0;
}

/* -1, 0 (also for -0) or 1; a NaN stays NaN. 0.0 ulp. */
NOYAU_INLINE double noyau_sign_f64(double x) {
    return x > 0 ? 1 : x < 0 ? -1 : x + 0;
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_copysign_f32(float x, float y) {
    return copysignf(x, y);
}

/* Exact. 0.0 ulp. */
NOYAU_INLINE double noyau_copysign_f64(double x, double y) {
    return copysign(x, y);
}

/* The greater; NaN if either is NaN. 0.0 ulp. Where y is known, one comparison is left, by two instructions. */
NOYAU_INLINE float noyau_maximum_f32(float x, float y) {
    return ((x <= y) | (y != y)) ? y : x;
}

/* The greater; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE double noyau_maximum_f64(double x, double y) {
    return ((x <= y) | (y != y)) ? y : x;
}

/* The lesser; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE float noyau_minimum_f32(float x, float y) {
    return ((x >= y) | (y != y)) ? y : x;
}

/* The lesser; NaN if either is NaN. 0.0 ulp. */
NOYAU_INLINE double noyau_minimum_f64(double x, double y) {
    return ((x >= y) | (y != y)) ? y : x;
}

/* The greater; a NaN gives way. 0.0 ulp. */
NOYAU_INLINE float noyau_fmax_f32(float x, float y) {
    return ((x > y) | (y != y)) ? x : y;
}

/* The greater; a NaN gives way. 0.0 ulp. */
NOYAU_INLINE double noyau_fmax_f64(double x, double y) {
    return ((x > y) | (y != y)) ? x : y;
}

/* The lesser; a NaN gives way. 0.0 ulp. */
NOYAU_INLINE float noyau_fmin_f32(float x, float y) {
    return ((x < y) | (y != y)) ? x : y;
}

/* The lesser; a NaN gives way. 0.0 ulp. */
NOYAU_INLINE double noyau_fmin_f64(double x, double y) {
    return ((x < y) | (y != y)) ? x : y;
}

/* x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
   that follows. 0.0 ulp. */
__attribute__((weak, visibility("hidden"))) float noyau_minus_zero_f32 = -0.0f;
NOYAU_INLINE float noyau_rounded_f32(float x) {
    return x + noyau_minus_zero_f32;
}

/* x, rounded: no compiler knows this -0, so that a product in x is fused with the sum, which is x, and with nothing
   that follows. 0.0 ulp. */
__attribute__((weak, visibility("hidden"))) double noyau_minus_zero_f64 = -0.0;
NOYAU_INLINE double noyau_rounded_f64(double x) {
    return x + noyau_minus_zero_f64;
}
