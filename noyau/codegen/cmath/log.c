/* n log(2) + log(1 + f) for |f| <= 1/3; the latter is f - f^2/2 + f^3 p(f), p minimax. */
NOYAU_INLINE float noyau_log_part_f32(float f, float n) {
    float p = -0.13200602f;
    p = p * f + 0.1396217f;
    p = p * f - 0.12113095f;
    p = p * f + 0.14010991f;
    p = p * f - 0.1668561f;
    p = p * f + 0.20010038f;
    p = p * f - 0.24999686f;
    p = p * f + 0.33333224f;
    return f * f * (p * f - 0.5f) + n * 0x1.7f7d1cp-20f + f + n * 0x1.62e4p-1f;
}

/* log(x) = n log(2) + log(1 + f) with |f| <= 1/3. 1.0 ulp. */
NOYAU_INLINE float noyau_log_f32(float x) {
    const float normal = x < 0x1p-126f ? x * 0x1p23f : x;
    const uint32_t bits = noyau_bits_f32(normal) - 0x3f2aaaab; /* 2/3 becomes 0 */
    const float n = (float)((int32_t)bits >> 23) - (x < 0x1p-126f ? 23 : 0);
    const float f = noyau_from_bits_f32((bits & 0x007fffff) + 0x3f2aaaab) - 1;
    const float y = noyau_log_part_f32(f, n);
    const float most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
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

/* log(x) / log(2). 0.6 ulp. */
NOYAU_INLINE float noyau_log2_f32(float x) {
    return (float)(noyau_wide_log(x) * 1.4426950408889634);
}

/* log(x) / log(10). 0.6 ulp. */
NOYAU_INLINE float noyau_log10_f32(float x) {
    return (float)(noyau_wide_log(x) * 0.4342944819032518);
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

/* As noyau_wide_log, with more terms and log(2) in two parts. 1.0 ulp. */
NOYAU_INLINE double noyau_log_f64(double x) {
    const double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    const uint64_t bits = noyau_bits_f64(normal) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const double whole = noyau_from_bits_f64((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    const double n = whole - (x < 0x1p-1022 ? 54 : 0);
    const double f = noyau_from_bits_f64((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1;
    const double s = f / (f + 2);
    const double z = s * s;
    double p = 0.14796007714623774;
    p = p * z + 0.15314050324702402;
    p = p * z + 0.1818356405404158;
    p = p * z + 0.2222219858558514;
    p = p * z + 0.2857142874217077;
    p = p * z + 0.3999999999941628;
    p = p * z + 0.6666666666666734;
    const double half = 0.5 * f * f;
    const double low = s * (half + p * z) + n * 0x1.ef35793c7673p-45;
    const double y = n * 0x1.62e42fefa38p-1 - (half - low - f);
    const double most = x < INFINITY ? y : x, none = x == 0 ? -INFINITY : NAN;
    return x > 0 ? most : none;
}

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_log2_f64(double x) {
    return log2(x);
}

/* The C library's. 2.0 ulp. */
NOYAU_INLINE double noyau_log10_f64(double x) {
    return log10(x);
}

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_log1p_f64(double x) {
    return log1p(x);
}

/* log(1 + e^x), by the C library. 2.0 ulp. */
NOYAU_INLINE double noyau_softplus_f64(double x) {
    return log1p(exp(-fabs(x))) + (x > 0 ? x : 0);
}
