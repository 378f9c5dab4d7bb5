/* Rounded once. 0.5 ulp. */
NOYAU_INLINE float noyau_sqrt_f32(float x) {
    return sqrtf(x);
}

/* Rounded once. 0.5 ulp. */
NOYAU_INLINE double noyau_sqrt_f64(double x) {
    return sqrt(x);
}

/* 1 / sqrt(x). 1.5 ulp. */
NOYAU_INLINE float noyau_rsqrt_f32(float x) {
    return 1 / sqrtf(x);
}

/* 1 / sqrt(x). 1.5 ulp. */
NOYAU_INLINE double noyau_rsqrt_f64(double x) {
    return 1 / sqrt(x);
}

/* Rounded once. 0.5 ulp. */
NOYAU_INLINE float noyau_reciprocal_f32(float x) {
    return 1 / x;
}

/* Rounded once. 0.5 ulp. */
NOYAU_INLINE double noyau_reciprocal_f64(double x) {
    return 1 / x;
}

/* By 2^(log2(|x|) / 3). 0.6 ulp. */
NOYAU_INLINE float noyau_cbrt_f32(float x) {
    const double a = fabs((double)x);
    const double y = noyau_wide_exp2_within(noyau_wide_log(a) * (1.4426950408889634 / 3), 0);
    return copysignf((float)(((a > 0) & (a < INFINITY)) ? y : a), x);
}

/* The C library's. 4.0 ulp. */
NOYAU_INLINE double noyau_cbrt_f64(double x) {
    return cbrt(x);
}

/* x^y = 2^(y log2(x)), with the special cases of C99. 0.6 ulp. */
NOYAU_INLINE float noyau_pow_f32(float x, float y) {
    const double base = x, power = y, half = power * 0.5, a = fabs(base);
    const double size = noyau_wide_exp2_less(power * (noyau_wide_log(a) * 1.4426950408889634), 0);
    const int whole = rint(power) == power, odd = whole & (rint(half) != half);
    const double signed_size = odd ? copysign(size, base) : size;
    const int bad = (base < 0) & (a < INFINITY) & !whole;
    const int one = (power == 0) | ((a == 1) & (fabs(power) == INFINITY)) | ((base == 1) & (power != power));
    const double known = noyau_choose_f64(bad, NAN, signed_size);
    return (float)noyau_choose_f64(one, 1, known);
}

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_pow_f64(double x, double y) {
    return pow(x, y);
}
