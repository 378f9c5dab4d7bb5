/* value 2^n, where shifted is n + 254 + 1.5 2^23, so that n is in its low bits.
   In two factors: a denormal result is rounded once. */
NOYAU_INLINE float noyau_scale_f32(float value, float shifted) {
    const uint32_t bits = noyau_bits_f32(shifted), half = bits >> 1;
    return value * noyau_from_bits_f32(half << 23) * noyau_from_bits_f32((bits - half) << 23);
}

/* x, but the limit where it is less; NaN stays. No compiler knows the limit: where it does, gcc computes what becomes
   of it apart, and chooses between the two at the end of a function, by six instructions instead of one. */
NOYAU_INLINE float noyau_from_limit_f32(float x, float limit) {
    const float least = noyau_rounded_f32(limit);
    return x < least ? least : x;
}

/* x, but the limit where it is greater; NaN stays. Nor is this limit known. */
NOYAU_INLINE float noyau_to_limit_f32(float x, float limit) {
    const float most = noyau_rounded_f32(limit);
    return x > most ? most : x;
}

/* (e^r - 1) / r for |r| <= log(2)/2: 1 + r p(r), p minimax. */
NOYAU_INLINE float noyau_exp_slope_f32(float r) {
    float p = 0.001393817f;
    p = p * r + 0.0083689885f;
    p = p * r + 0.04166643f;
    p = p * r + 0.16666518f;
    p = p * r + 0.5f;
    return p * r + 1;
}

/* e^r for |r| <= log(2)/2. */
NOYAU_INLINE float noyau_exp_part_f32(float r) {
    return noyau_exp_slope_f32(r) * r + 1;
}

/* e^x = 2^n e^r with whole n and |r| <= log(2)/2. At the limits the scale is 0, or overflows: masks are full of -inf,
   and a product that is rounded to 0 takes a processor longer than one with 0. 2^n in two factors: a denormal result
   is rounded once; what is added to the first one is scaled while the slope is computed. 1.2 ulp. */
NOYAU_INLINE float noyau_exp_f32(float x) {
    const float t = noyau_to_limit_f32(noyau_from_limit_f32(x, -176.1f), 89);
    const float shifted = t * 1.442695f + (0x1.8p23f + 254);
    const float n = shifted - (0x1.8p23f + 254);
    const float r = t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const uint32_t bits = noyau_bits_f32(shifted), half = bits >> 1;
    const float scale = noyau_from_bits_f32(half << 23);
    return (noyau_exp_slope_f32(r) * (r * scale) + scale) * noyau_from_bits_f32((bits - half) << 23);
}

/* e^x for x <= 0, and up to 66, as right as for any x, by one factor, which may be denormal; at the limit it is 0. The
   factor comes of the bits and a constant, while the slope is computed. */
NOYAU_INLINE float noyau_exp_negative_f32(float x) {
    const float t = noyau_from_limit_f32(x, -110.2f);
    const float shifted = t * 1.442695f + (0x1.8p23f + 159);
    const float n = shifted - (0x1.8p23f + 159);
    const float r = t - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; /* log(2) in two parts */
    const float scale = noyau_from_bits_f32(noyau_bits_f32(shifted) << 23) * 0x1p-32f;
    return noyau_exp_slope_f32(r) * (r * scale) + scale;
}

/* e^x for |x| < 87, where neither end of the range need be watched. */
NOYAU_INLINE float noyau_exp_within_f32(float x) {
    const float shifted = x * 1.442695f + (0x1.8p23f + 127);
    const float n = shifted - (0x1.8p23f + 127);
    const float scale = noyau_from_bits_f32(noyau_bits_f32(shifted) << 23);
    return scale * noyau_exp_part_f32(x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f);
}

/* 2^x = 2^n 2^r with whole n and |r| <= 1/2; 2^r is 1 + r p(r), p minimax. 1.1 ulp. */
NOYAU_INLINE float noyau_exp2_f32(float x) {
    const float shifted = x + (0x1.8p23f + 254);
    const float r = x - (shifted - (0x1.8p23f + 254));
    float p = 0.00015458444f;
    p = p * r + 0.0013392024f;
    p = p * r + 0.009618073f;
    p = p * r + 0.055503573f;
    p = p * r + 0.2402265f;
    p = p * r + 0.6931472f;
    const float y = noyau_scale_f32(p * r + 1, shifted);
    const float low = x < -151 ? 0 : y;
    return x > 129 ? INFINITY : low;
}

/* The wide functions compute in double what is then rounded to float, right to 2^-26 or better.
   2^x - less, for |x| < 1022: 2^n (1 + r p(r)) - less with whole n and |r| <= 1/2, p minimax; with less = 1
   right relative to its size, also near 0. */
NOYAU_INLINE double noyau_wide_exp2_within(double x, double less) {
    const double shifted = x + (0x1.8p52 + 1023);
    const double scale = noyau_from_bits_f64(noyau_bits_f64(shifted) << 52);
    const double r = x - (shifted - (0x1.8p52 + 1023));
    double p = 0.00015402627861971162;
    p = p * r + 0.0013390977248113386;
    p = p * r + 0.009618241598680357;
    p = p * r + 0.05550356988633254;
    p = p * r + 0.24022649760481676;
    p = p * r + 0.6931471880133948;
    return scale * (p * r) + (scale - less);
}

/* 2^x - less; beyond +-1000 it is what it is there. */
NOYAU_INLINE double noyau_wide_exp2_less(double x, double less) {
    const double most = noyau_choose_f64(x > 1000, 1000, x);
    return noyau_wide_exp2_within(noyau_choose_f64(x < -1000, -1000, most), less);
}

/* e^x - 1. 0.7 ulp. */
NOYAU_INLINE float noyau_expm1_f32(float x) {
    return copysignf((float)noyau_wide_exp2_less(x * 1.4426950408889634, 1), x); /* -0 stays */
}

/* value 2^n, where shifted is n + 2046 + 1.5 2^52: as noyau_scale_f32. */
NOYAU_INLINE double noyau_scale_f64(double value, double shifted) {
    const uint64_t bits = noyau_bits_f64(shifted), half = bits >> 1;
    return value * noyau_from_bits_f64(half << 52) * noyau_from_bits_f64((bits - half) << 52);
}

/* e^(most - rest) as high + *low, for |most| <= log(2)/2 and a rest below its last bits: e^r is 1 + r + r^2 p(r),
   p minimax, where 1 + r is high and what it was rounded by goes to low. */
NOYAU_INLINE double noyau_exp_reduced_f64(double most, double rest, double *low) {
    const double r = most - rest;
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
    const double high = 1 + most;
    *low = (most - (high - 1)) + (p * (r * r) - rest);
    return high;
}

/* e^x as 2^n (high + *low), n in shifted as noyau_scale_f64 has it; log(2) in two parts. */
NOYAU_INLINE double noyau_exp_parts_f64(double x, double *low, double *shifted) {
    *shifted = x * 1.4426950408889634 + (0x1.8p52 + 2046);
    const double n = *shifted - (0x1.8p52 + 2046);
    double rest;
    const double high = noyau_exp_reduced_f64(x - n * 0x1.62e42fefa38p-1, n * 0x1.ef35793c7673p-45, &rest);
    *low = rest;
    return high;
}

/* e^x. 0.8 ulp. */
NOYAU_INLINE double noyau_exp_f64(double x) {
    double low, shifted;
    const double high = noyau_exp_parts_f64(x, &low, &shifted);
    const double y = noyau_scale_f64(high + low, shifted);
    const double tail = x < -746 ? 0 : y;
    return x > 710 ? INFINITY : tail;
}

/* 2^x = 2^n e^(r log(2)) with whole n and |r| <= 1/2. 1.0 ulp. */
NOYAU_INLINE double noyau_exp2_f64(double x) {
    const double shifted = x + (0x1.8p52 + 2046);
    const double r = x - (shifted - (0x1.8p52 + 2046));
    double low;
    const double high = noyau_exp_reduced_f64(r * 0.6931471805599453, 0, &low);
    const double y = noyau_scale_f64(high + low, shifted);
    const double tail = x < -1080 ? 0 : y;
    return x > 1030 ? INFINITY : tail;
}

/* e^x - 1 for |x| < 700, as the value and *rest, which is less than its last bit: what e^x and the difference were
   rounded by. */
NOYAU_INLINE double noyau_expm1_parts_f64(double x, double *rest) {
    double low, shifted;
    const double high = noyau_exp_parts_f64(x, &low, &shifted);
    const double e = noyau_scale_f64(high, shifted), most = e - 1;
    *rest = (e - most - 1) + noyau_scale_f64(low, shifted);
    return most;
}

/* From 40 on it is e^x, below -40 it is -1. 1.5 ulp. */
NOYAU_INLINE double noyau_expm1_f64(double x) {
    double rest;
    const double most = noyau_expm1_parts_f64(x > 40 ? 40 : x < -40 ? -40 : x, &rest);
    return copysign(x > 40 ? noyau_exp_f64(x) : most + rest, x); /* -0 stays */
}
