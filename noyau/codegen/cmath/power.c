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

/* 1 / cbrt(a) for a normal a > 0, right to 2e-5: a third of its bits, less 11 %, made up for by the binomial series. */
NOYAU_INLINE double noyau_cbrt_start_f64(double a) {
    const uint64_t third = ((noyau_bits_f64(a) >> 32) * 0x55555556) >> 32;
    const double y = noyau_from_bits_f64((0x553ee960 - third) << 32);
    const double e = 1 - a * y * y * y;
    return y + y * (e * (0.3333333333333333 + e * (0.2222222222222222 + e * 0.1728395061728395)));
}

/* a y^2 with y = 1 / cbrt(a), by Newton. 0.6 ulp. */
NOYAU_INLINE float noyau_cbrt_f32(float x) {
    const double a = fabs((double)x), y = noyau_cbrt_start_f64(a), t = a * y * y;
    const double root = t + (a - t * t * t) * (y * y * 0.3333333333333333);
    return copysignf((float)((a > 0) & (a < INFINITY) ? root : a), x);
}

/* a y^2 with y = 1 / cbrt(a), by Newton once more: the square of the first 25 bits of a root is exact. 1.0 ulp. */
NOYAU_INLINE double noyau_cbrt_f64(double x) {
    const double size = fabs(x), a = size < 0x1p-1000 ? size * 0x1p300 : size;
    const double start = noyau_cbrt_start_f64(a), e = 1 - a * start * start * start;
    const double y = start + start * (e * (0.3333333333333333 + e * 0.2222222222222222));
    const double t = a * y * y;
    const double high = noyau_from_bits_f64(noyau_bits_f64(t) & 0xfffffffff0000000), low = t - high;
    const double rest = a - high * high * high - 3 * high * low * t;
    const double root = (t + rest * (y * y * 0.3333333333333333)) * (size < 0x1p-1000 ? 0x1p-100 : 1);
    return copysign((size > 0) & (size < INFINITY) ? root : size, x);
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
