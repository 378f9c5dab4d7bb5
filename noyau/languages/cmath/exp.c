/* value 2^n, where shifted is n + 254 + 1.5 2^23, so that n is in its low bits.
   In two factors: a denormal result is rounded once. */
static inline float noyau_scale_f32(float value, float shifted) {
    const uint32_t bits = noyau_bits_f32(shifted), half = bits >> 1;
    return value * noyau_from_bits_f32(half << 23) * noyau_from_bits_f32((bits - half) << 23);
}

/* e^x = 2^n e^r with whole n and |r| <= log(2)/2; e^r is 1 + r + r^2 p(r), p minimax. 1.0 ulp. */
static inline float noyau_exp_f32(float x) {
    const float shifted = x * 1.442695f + (0x1.8p23f + 254);
    const float n = shifted - (0x1.8p23f + 254);
    const float r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    float p = 0.001393817f;
    p = p * r + 0.0083689885f;
    p = p * r + 0.04166643f;
    p = p * r + 0.16666518f;
    p = p * r + 0.5f;
    const float y = noyau_scale_f32(p * (r * r) + r + 1, shifted);
    return x > 89 ? INFINITY : x < -104 ? 0 : y;
}

/* 2^x = 2^n 2^r with whole n and |r| <= 1/2; 2^r is 1 + r p(r), p minimax. 1.0 ulp. */
static inline float noyau_exp2_f32(float x) {
    const float shifted = x + (0x1.8p23f + 254);
    const float r = x - (shifted - (0x1.8p23f + 254));
    float p = 0.00015458444f;
    p = p * r + 0.0013392024f;
    p = p * r + 0.009618073f;
    p = p * r + 0.055503573f;
    p = p * r + 0.2402265f;
    p = p * r + 0.6931472f;
    const float y = noyau_scale_f32(p * r + 1, shifted);
    return x > 129 ? INFINITY : x < -151 ? 0 : y;
}

/* The wide functions compute in double what is then rounded to float: right to 2^-34 or better.
   e^r - 1 for |r| <= log(2)/2: r + r^2 p(r), p minimax. */
static inline double noyau_wide_exp_part(double r) {
    double p = 2.4883145832013805e-5;
    p = p * r + 0.00019905244576813214;
    p = p * r + 0.00138888080318707;
    p = p * r + 0.008333288543684321;
    p = p * r + 0.04166666696136645;
    p = p * r + 0.16666666755849457;
    p = p * r + 0.4999999999973537;
    return p * (r * r) + r;
}

/* 2^x; beyond +-1000 it stays what it is there. */
static inline double noyau_wide_exp2(double x) {
    x = x > 1000 ? 1000 : x < -1000 ? -1000 : x;
    const double shifted = x + (0x1.8p52 + 1023);
    const double r = x - (shifted - (0x1.8p52 + 1023));
    const double scale = noyau_from_bits_f64(noyau_bits_f64(shifted) << 52);
    return scale + scale * noyau_wide_exp_part(r * 0.6931471805599453);
}

/* e^x - 1, relative to its size also near 0; beyond +-700 it stays what it is there. */
static inline double noyau_wide_expm1(double x) {
    x = x > 700 ? 700 : x < -700 ? -700 : x;
    const double shifted = x * 1.4426950408889634 + (0x1.8p52 + 1023);
    const double n = shifted - (0x1.8p52 + 1023);
    const double r = x - n * 0x1.62e42ffp-1 + n * 0x1.718432a1b0e26p-35;
    const double scale = noyau_from_bits_f64(noyau_bits_f64(shifted) << 52);
    return (scale - 1) + scale * noyau_wide_exp_part(r);
}

/* e^x; beyond +-700 it stays what it is there. */
static inline double noyau_wide_exp(double x) {
    return noyau_wide_exp2(x * 1.4426950408889634);
}

/* 0.6 ulp. */
static inline float noyau_expm1_f32(float x) {
    const double wide = x;
    return (float)(wide == 0 ? wide : noyau_wide_expm1(wide)); /* -0 stays */
}

/* value 2^n, where shifted is n + 2046 + 1.5 2^52, as noyau_scale_f32. */
static inline double noyau_scale_f64(double value, double shifted) {
    const uint64_t bits = noyau_bits_f64(shifted), half = bits >> 1;
    return value * noyau_from_bits_f64(half << 52) * noyau_from_bits_f64((bits - half) << 52);
}

/* e^r - 1 for |r| <= log(2)/2: r + r^2 p(r), p minimax. */
static inline double noyau_exp_part_f64(double r) {
    double p = 2.511554176208322e-8;
    p = p * r + 2.76265487794339e-7;
    p = p * r + 2.755722477418294e-6;
    p = p * r + 2.4801503946616203e-5;
    p = p * r + 0.00019841269906335115;
    p = p * r + 0.0013888888932724966;
    p = p * r + 0.0083333333333132;
    p = p * r + 0.041666666666572906;
    p = p * r + 0.16666666666666688;
    p = p * r + 0.5000000000000006;
    return p * (r * r) + r;
}

/* As noyau_exp_f32. 1.0 ulp. */
static inline double noyau_exp_f64(double x) {
    const double shifted = x * 1.4426950408889634 + (0x1.8p52 + 2046);
    const double n = shifted - (0x1.8p52 + 2046);
    const double r = x - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45;
    const double y = noyau_scale_f64(noyau_exp_part_f64(r) + 1, shifted);
    return x > 710 ? INFINITY : x < -746 ? 0 : y;
}

/* The C library's. 1.0 ulp. */
static inline double noyau_exp2_f64(double x) {
    return exp2(x);
}

/* The C library's. 1.0 ulp. */
static inline double noyau_expm1_f64(double x) {
    return expm1(x);
}
