/* log(1 + f) - f for |f| <= 1/3: -f^2/2 + f^3 p(f), p minimax. */
NOYAU_INLINE float noyau_log_rest_f32(float f) {
    float p = -0.13200602f;
    p = p * f + 0.1396217f;
    p = p * f - 0.12113095f;
    p = p * f + 0.14010991f;
    p = p * f - 0.1668561f;
    p = p * f + 0.20010038f;
    p = p * f - 0.24999686f;
    p = p * f + 0.33333224f;
    return f * f * (p * f - 0.5f);
}

/* n log(2) + log(1 + f) for |f| <= 1/3. */
NOYAU_INLINE float noyau_log_part_f32(float f, float n) {
    return noyau_log_rest_f32(f) + n * 0x1.7f7d1cp-20f + f + n * 0x1.62e4p-1f;
}

/* f with x = 2^*n (1 + f), |f| <= 1/3, for 0 < x < infinity. */
NOYAU_INLINE float noyau_log_split_f32(float x, float *n) {
    const float normal = x < 0x1p-126f ? x * 0x1p23f : x;
    const uint32_t bits = noyau_bits_f32(normal) - 0x3f2aaaab; /* 2/3 becomes 0 */
    *n = (float)((int32_t)bits >> 23) - (x < 0x1p-126f ? 23 : 0);
    return noyau_from_bits_f32((bits & 0x007fffff) + 0x3f2aaaab) - 1;
}

/* y, or what the logarithm of x is where that is no number. */
NOYAU_INLINE float noyau_log_ends_f32(float x, float y) {
    const float most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* log(x) = n log(2) + log(1 + f). 1.0 ulp. */
NOYAU_INLINE float noyau_log_f32(float x) {
    float n;
    const float f = noyau_log_split_f32(x, &n);
    return noyau_log_ends_f32(x, noyau_log_part_f32(f, n));
}

/* n + log(1 + f) / log(2), the factor of f in two parts. 2.0 ulp. */
NOYAU_INLINE float noyau_log2_f32(float x) {
    float n;
    const float f = noyau_log_split_f32(x, &n);
    const float low = noyau_log_rest_f32(f) * 1.442695f + f * 1.925963e-8f;
    return noyau_log_ends_f32(x, low + f * 1.442695f + n);
}

/* n log10(2) + log(1 + f) / log(10), each factor in two parts. 2.0 ulp. */
NOYAU_INLINE float noyau_log10_f32(float x) {
    float n;
    const float f = noyau_log_split_f32(x, &n);
    const float low = noyau_log_rest_f32(f) * 0.4342945f + f * -1.010305e-8f;
    return noyau_log_ends_f32(x, low + n * 0x1.3509f8p-18f + f * 0.4342945f + n * 0x1.344p-2f);
}

/* log(u), with near = u - 1 as exactly as the caller knows it: used where u has no exponent to speak of.
   u = 2^n m with m from sqrt(1/2) to sqrt(2); log(m) = 2 atanh(s) with s = (m - 1)/(m + 1). */
NOYAU_INLINE double noyau_wide_log_near(double u, double near) {
    const uint64_t bits = noyau_bits_f64(u) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const double n = noyau_from_bits_f64((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    const double m = noyau_from_bits_f64((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
    const double f = n == 0 ? near : m - 1;
    const double s = f / (f + 2);
    const double z = s * s;
    double p = 0.1682029217021389;
    p = p * z + 0.1812360515468205;
    p = p * z + 0.2222337275565252;
    p = p * z + 0.28571417116595066;
    p = p * z + 0.4000000005233695;
    p = p * z + 0.6666666666658714;
    const double y = s * (p * z + 2) + n * 0.6931471805599453;
    const double most = u < INFINITY ? y : u, none = u == 0 ? -INFINITY : NAN;
    return u > 0 ? most : none;
}

/* log(x). */
NOYAU_INLINE double noyau_wide_log(double x) {
    return noyau_wide_log_near(x, x - 1);
}

/* log(1 + x), relative to its size also near 0. */
NOYAU_INLINE double noyau_wide_log1p(double x) {
    return noyau_wide_log_near(1 + x, x);
}

/* log(1 + x). 0.6 ulp. */
NOYAU_INLINE float noyau_log1p_f32(float x) {
    return copysignf((float)noyau_wide_log1p(x), x); /* -0 stays */
}

/* log(1 + e^x), which is max(x, 0) + log(1 + e) with e = e^-|x|; above 1/3 the latter is log(2) + log(1 + (e - 1)/2).
   2.0 ulp. */
NOYAU_INLINE float noyau_softplus_f32(float x) {
    const float e = noyau_exp_negative_f32(-fabsf(x));
    const float n = e > 0x1.555556p-2f ? 1 : 0;
    const float f = e > 0x1.555556p-2f ? (e - 1) * 0.5f : e;
    const float rest = noyau_log_part_f32(f, n);
    return rest + (x > 0 ? x : 0);
}

/* f with x = 2^*n (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for 0 < x < infinity. */
NOYAU_INLINE double noyau_log_split_f64(double x, double *n) {
    const double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    const uint64_t bits = noyau_bits_f64(normal) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const double whole = noyau_from_bits_f64((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    *n = whole - (x < 0x1p-1022 ? 54 : 0);
    return noyau_from_bits_f64((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
}

/* log(1 + f) - f + half, with half = f^2 / 2: as noyau_wide_log, with more terms. */
NOYAU_INLINE double noyau_log_rest_f64(double f, double half) {
    const double s = f / (f + 2);
    const double z = s * s;
    double p = 0.14796007714623774;
    p = p * z + 0.15314050324702402;
    p = p * z + 0.1818356405404158;
    p = p * z + 0.2222219858558514;
    p = p * z + 0.2857142874217077;
    p = p * z + 0.3999999999941628;
    p = p * z + 0.6666666666666734;
    return s * (half + p * z);
}

/* y, or what the logarithm of x is where that is no number. */
NOYAU_INLINE double noyau_log_ends_f64(double x, double y) {
    const double most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* n log(2) + log(1 + f), log(2) in two parts. 1.0 ulp. */
NOYAU_INLINE double noyau_log_f64(double x) {
    double n;
    const double f = noyau_log_split_f64(x, &n), half = 0.5 * f * f;
    const double low = noyau_log_rest_f64(f, half) + n * 0x1.ef35793c7673p-45;
    return noyau_log_ends_f64(x, n * 0x1.62e42fefa38p-1 - (half - low - f));
}

/* log(1 + f) as a number of 21 bits, by which a product is exact, and *low. */
NOYAU_INLINE double noyau_log_parts_f64(double f, double *low) {
    const double half = 0.5 * f * f;
    const double high = noyau_from_bits_f64(noyau_bits_f64(f - half) & 0xffffffff00000000);
    *low = (f - high - half) + noyau_log_rest_f64(f, half);
    return high;
}

/* n + log(1 + f) / log(2), as fdlibm: the quotient's first 42 bits are exact. 1.0 ulp. */
NOYAU_INLINE double noyau_log2_f64(double x) {
    double n, low;
    const double f = noyau_log_split_f64(x, &n), high = noyau_log_parts_f64(f, &low);
    const double most = high * 0x1.71547p+0, sum = n + most;
    const double rest = (low + high) * 0x1.94ae0bf85ddf4p-22 + low * 0x1.71547p+0;
    return noyau_log_ends_f64(x, sum + (rest + ((n - sum) + most)));
}

/* n log10(2) + log(1 + f) / log(10), as noyau_log2_f64. 1.5 ulp. */
NOYAU_INLINE double noyau_log10_f64(double x) {
    double n, low;
    const double f = noyau_log_split_f64(x, &n), high = noyau_log_parts_f64(f, &low);
    const double most = high * 0x1.bcb7bp-2, twos = n * 0x1.34413509f6p-2, sum = twos + most;
    const double part = (low + high) * 0x1.526e50e32a6abp-26 + low * 0x1.bcb7bp-2;
    const double rest = part + n * 0x1.9fef311f12b36p-42;
    return noyau_log_ends_f64(x, sum + (rest + ((twos - sum) + most)));
}

/* log(u) for u = 1 + x, and what u was rounded by over u; where u has no exponent to speak of, f is x. 1.0 ulp. */
NOYAU_INLINE double noyau_log1p_f64(double x) {
    double n;
    const double u = 1 + x, lost = x < 1 ? x - (u - 1) : 1 - (u - x);
    const double m = noyau_log_split_f64(u, &n), f = n == 0 ? x : m, half = 0.5 * f * f;
    const double part = n == 0 ? 0 : lost / u;
    const double low = noyau_log_rest_f64(f, half) + (n * 0x1.ef35793c7673p-45 + part);
    return copysign(noyau_log_ends_f64(u, n * 0x1.62e42fefa38p-1 - (half - low - f)), x); /* -0 stays */
}

/* log(1 + e^x), which is max(x, 0) + log(1 + e) with e = e^-|x|. 2.0 ulp. */
NOYAU_INLINE double noyau_softplus_f64(double x) {
    return noyau_log1p_f64(noyau_exp_f64(-fabs(x))) + (x > 0 ? x : 0);
}
