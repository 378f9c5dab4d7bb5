/* 1 / (1 + e^-x) as 2^-64 / (2^-64 + 2^-64 e^-x): neither overflows where the other counts. At the lower limit e^-x is
   infinite, at the upper one it adds nothing to 1. 2.5 ulp. */
NOYAU_INLINE float noyau_sigmoid_f32(float x) {
    const float t = noyau_to_limit_f32(noyau_from_limit_f32(x, -133.2f), 40);
    const float shifted = t * -1.442695f + (0x1.8p23f + 63);
    const float n = shifted - (0x1.8p23f + 63);
    const float r = -t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const float scale = noyau_from_bits_f32(noyau_bits_f32(shifted) << 23);
    return 0x1p-64f / (noyau_exp_part_f32(r) * scale + 0x1p-64f);
}

/* Near 0: x + x^3 p(x^2), p minimax; else 1 - 2 / (e^2|x| + 1). From 10 on it is 1. 1.5 ulp. */
NOYAU_INLINE float noyau_tanh_f32(float x) {
    const float a = fabsf(x), z = x * x;
    float p = 0.0015905149f;
    p = p * z - 0.007420243f;
    p = p * z + 0.02131032f;
    p = p * z - 0.05385459f;
    p = p * z + 0.1333225f;
    p = p * z - 0.333333f;
    const float far = 1 - 2 / (noyau_exp_within_f32(2 * noyau_to_limit_f32(a, 10)) + 1);
    return copysignf(a < 0.8f ? p * z * a + a : far, x);
}

/* (m + m / (m + 1)) / 2 with m = e^|x| - 1. 0.7 ulp. */
NOYAU_INLINE float noyau_sinh_f32(float x) {
    const double a = fabs((double)x) > 100 ? 100 : fabs((double)x); /* infinity in float */
    const double m = noyau_wide_exp2_within(a * 1.4426950408889634, 1);
    return copysignf((float)(0.5 * (m + m / (m + 1))), x);
}

/* (e^x + e^-x) / 2. 0.6 ulp. */
NOYAU_INLINE float noyau_cosh_f32(float x) {
    const double a = fabs((double)x) > 100 ? 100 : fabs((double)x); /* infinity in float */
    const double e = noyau_wide_exp2_within(a * 1.4426950408889634, 0);
    return (float)(0.5 * (e + 1 / e));
}

/* log(a + sqrt(a^2 + 1)) with a = |x|. 0.6 ulp. */
NOYAU_INLINE float noyau_asinh_f32(float x) {
    const double a = fabs((double)x);
    const double y = noyau_wide_log1p(a + a * a / (1 + sqrt(a * a + 1)));
    return copysignf((float)(a < INFINITY ? y : a), x);
}

/* log(x + sqrt(x^2 - 1)), by t = x - 1. 0.6 ulp. */
NOYAU_INLINE float noyau_acosh_f32(float x) {
    const double wide = x, t = wide - 1;
    const double y = noyau_wide_log1p(t + sqrt(t * (t + 2)));
    return (float)(wide >= 1 ? y : NAN);
}

/* log((1 + a) / (1 - a)) / 2 with a = |x|. 0.6 ulp. */
NOYAU_INLINE float noyau_atanh_f32(float x) {
    const double a = fabs((double)x);
    return copysignf((float)(0.5 * noyau_wide_log1p(2 * a / (1 - a))), x);
}

/* e / (1 + e) or 1 / (1 + e) with e = e^-|x|; what the sum was rounded by is made up for. 2.0 ulp. */
NOYAU_INLINE double noyau_sigmoid_f64(double x) {
    const double e = noyau_exp_f64(-fabs(x));
    const double sum = 1 + e, lost = e - (sum - 1);
    const double y = (x < 0 ? e : 1) / sum;
    return y - y * (lost / sum);
}

/* m / (m + 2) with m = e^2|x| - 1; what m and m + 2 were rounded by is made up for. From 20 on it is 1. 1.5 ulp. */
NOYAU_INLINE double noyau_tanh_f64(double x) {
    double rest;
    const double a = fabs(x);
    const double most = noyau_expm1_parts_f64(a > 20 ? 40 : 2 * a, &rest);
    const double m = most + rest, sum = m + 2, y = m / sum;
    const double lost = (rest - (m - most)) * (1 - y) - y * (m - (sum - 2));
    return copysign(y + lost / sum, x);
}

/* e^a / 2 for a >= 0: one exponent less, so that it overflows where sinh and cosh do. */
NOYAU_INLINE double noyau_half_exp_f64(double a) {
    double low, shifted;
    const double high = noyau_exp_parts_f64(a > 720 ? 720 : a, &low, &shifted);
    return noyau_scale_f64(high + low, shifted - 1);
}

/* Up to 1: x + x^3 p(x^2), p minimax; else h - 1/(4 h) with h = e^|x| / 2. 2.0 ulp. */
NOYAU_INLINE double noyau_sinh_f64(double x) {
    const double a = fabs(x), z = a * a, h = noyau_half_exp_f64(a);
    double p = 7.779361476215047e-13;
    p = p * z + 1.605657582704159e-10;
    p = p * z + 2.505213193822114e-8;
    p = p * z + 2.7557319101911064e-6;
    p = p * z + 0.00019841269841604526;
    p = p * z + 0.008333333333332903;
    p = p * z + 0.16666666666666669;
    return copysign(a < 1 ? p * z * a + a : h - 0.25 / h, x);
}

/* h + 1/(4 h) with h = e^|x| / 2. 2.0 ulp. */
NOYAU_INLINE double noyau_cosh_f64(double x) {
    const double h = noyau_half_exp_f64(fabs(x));
    return h + 0.25 / h;
}

/* log(a + sqrt(a^2 + 1)) with a = |x|; where a^2 is too much, log(2 a). 2.0 ulp. */
NOYAU_INLINE double noyau_asinh_f64(double x) {
    const double a = fabs(x), square = a * a;
    const double t = a > 1e150 ? a : a + square / (1 + sqrt(square + 1));
    return copysign(noyau_log1p_f64(t) + (a > 1e150 ? 0.6931471805599453 : 0), x);
}

/* log(x + sqrt(x^2 - 1)), by t = x - 1, and what the sum was rounded by; where x^2 is too much, log(2 x). 2.0 ulp. */
NOYAU_INLINE double noyau_acosh_f64(double x) {
    const double t = x - 1, root = x > 1e150 ? 0 : sqrt(t * t + 2 * t);
    const double sum = t + root, lost = (t - (sum - root)) / (1 + sum);
    return x < 1 ? NAN : noyau_log1p_f64(sum) + (x > 1e150 ? 0.6931471805599453 : lost);
}

/* log((1 + a) / (1 - a)) / 2 with a = |x|. 2.0 ulp. */
NOYAU_INLINE double noyau_atanh_f64(double x) {
    const double a = fabs(x), twice = 2 * a;
    const double ratio = (a < 0.5 ? twice * a : twice) / (1 - a);
    return copysign(0.5 * noyau_log1p_f64(a < 0.5 ? twice + ratio : ratio), x);
}
