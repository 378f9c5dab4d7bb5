/* 1 / (1 + e^-x); written with e^-|x|, which cannot overflow. 1.5 ulp. */
static inline float noyau_sigmoid_f32(float x) {
    const float e = noyau_exp_f32(-fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* Near 0: x + x^3 p(x^2), p minimax; else 1 - 2 / (e^2|x| + 1). 1.5 ulp. */
static inline float noyau_tanh_f32(float x) {
    const float a = fabsf(x), z = x * x;
    float p = -0.00590191f;
    p = p * z + 0.020801712f;
    p = p * z - 0.053785484f;
    p = p * z + 0.13331942f;
    p = p * z - 0.333333f;
    const float near = p * z * a + a;
    const float far = 1 - 2 / (noyau_exp_f32(2 * a) + 1);
    return copysignf(a < 0.6f ? near : far, x);
}

/* 0.6 ulp. */
static inline float noyau_sinh_f32(float x) {
    const double m = noyau_wide_expm1(fabs((double)x));
    return copysignf((float)(0.5 * (m + m / (m + 1))), x);
}

/* 0.6 ulp. */
static inline float noyau_cosh_f32(float x) {
    const double e = noyau_wide_exp(x);
    return (float)(0.5 * (e + 1 / e));
}

/* log(a + sqrt(a^2 + 1)). 0.6 ulp. */
static inline float noyau_asinh_f32(float x) {
    const double a = fabs((double)x);
    const double y = noyau_wide_log1p(a + a * a / (1 + sqrt(a * a + 1)));
    return copysignf((float)(a < INFINITY ? y : a), x);
}

/* log(x + sqrt(x^2 - 1)), by t = x - 1. 0.6 ulp. */
static inline float noyau_acosh_f32(float x) {
    const double wide = x, t = wide - 1;
    const double y = noyau_wide_log1p(t + sqrt(t * (t + 2)));
    return (float)(wide >= 1 ? y : NAN);
}

/* log((1 + a) / (1 - a)) / 2. 0.6 ulp. */
static inline float noyau_atanh_f32(float x) {
    const double a = fabs((double)x);
    return copysignf((float)(0.5 * noyau_wide_log1p(2 * a / (1 - a))), x);
}

/* As noyau_sigmoid_f32. 2.0 ulp. */
static inline double noyau_sigmoid_f64(double x) {
    const double e = noyau_exp_f64(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* m / (m + 2) with m = e^2|x| - 1; from 20 on it is 1. 2.0 ulp. */
static inline double noyau_tanh_f64(double x) {
    const double a = fabs(x), twice = a > 20 ? 40 : 2 * a;
    const double shifted = twice * 1.4426950408889634 + (0x1.8p52 + 1023);
    const double n = shifted - (0x1.8p52 + 1023);
    const double r = twice - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45;
    const double scale = noyau_from_bits_f64(noyau_bits_f64(shifted) << 52);
    const double m = (scale - 1) + scale * noyau_exp_part_f64(r);
    return copysign(m / (m + 2), x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_sinh_f64(double x) {
    return sinh(x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_cosh_f64(double x) {
    return cosh(x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_asinh_f64(double x) {
    return asinh(x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_acosh_f64(double x) {
    return acosh(x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_atanh_f64(double x) {
    return atanh(x);
}
