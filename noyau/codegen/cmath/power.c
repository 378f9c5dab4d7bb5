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

/* The size with the sign of x where the power is odd, by bits: gcc 12 has no vectors for ?: where y, and so the
   condition, is the same in all rounds of a loop. */
NOYAU_INLINE double noyau_odd_sign_f64(double size, double x, int odd) {
    return noyau_from_bits_f64(noyau_bits_f64(size) | (noyau_bits_f64(x) & ((uint64_t)odd << 63)));
}

/* x^y = 2^(y log2(x)), with the special cases of C99. No compiler knows y: where it does, gcc gives those a path of
   their own, and no vector has paths. 0.6 ulp. */
NOYAU_INLINE float noyau_pow_f32(float x, float y) {
    const double base = x, power = noyau_rounded_f32(y), half = power * 0.5, a = fabs(base);
    const double size = noyau_wide_exp2_less(power * (noyau_wide_log(a) * 1.4426950408889634), 0);
    const int whole = rint(power) == power, odd = whole & (rint(half) != half);
    const double signed_size = noyau_odd_sign_f64(size, base, odd);
    const int bad = (base < 0) & (a < INFINITY) & !whole;
    const int one = (power == 0) | ((a == 1) & (fabs(power) == INFINITY)) | ((base == 1) & (power != power));
    const double with_nan = noyau_choose_f64(bad, NAN, signed_size);
    return (float)noyau_choose_f64(one, 1, with_nan);
}

/* The first 21 bits of x, by which a product of as many, or of 32, is exact. */
NOYAU_INLINE double noyau_first_f64(double x) {
    return noyau_from_bits_f64(noyau_bits_f64(x) & 0xffffffff00000000);
}

/* log2(x) as 21 bits and *low, together right to 2^-65, for 0 < x < infinity: as fdlibm, with s = f / (f + 2) in two
   parts, 3 atanh(s) / s = 3 + s^2 + s^4 p(s^2), p minimax, and 2 / (3 log(2)) in two parts. */
NOYAU_INLINE double noyau_log2_parts_f64(double x, double *low) {
    double n;
    const double f = noyau_log_split_f64(x, &n), m = f + 1, below = m + 1, most = noyau_first_f64(below);
    const double inverse = 1 / below, s = f * inverse, head = noyau_first_f64(s);
    const double tail = ((f - head * most) - head * (m - (most - 1))) * inverse, z = s * s, square = head * head;
    const double second = z * z, upper = (0.19796779302629197 * z + 0.19884988795869726) * z + 0.23080145827041185;
    const double middle = 0.2727267634603268 * z + 0.3333333378211477;
    const double lower = 0.42857142855137603 * z + 0.6000000000000341;
    const double p = upper * second * second + (middle * second + lower);
    const double rest = p * second + tail * (head + s), sum = noyau_first_f64(3 + square + rest);
    const double u = head * sum, v = tail * sum + (rest - ((sum - 3) - square)) * s;
    const double high = noyau_first_f64(u + v), left = v - (high - u);
    const double part = high * 0x1.ec708p-1, small = high * 0x1.dc3a03fd749fcp-21 + left * 0.9617966939259756;
    const double y = noyau_first_f64(part + small + n);
    *low = small - ((y - n) - part);
    return y;
}

/* y log2(x) as 42 bits and *tail, for 0 < x < infinity. */
NOYAU_INLINE double noyau_exponent_f64(double x, double y, double *tail) {
    double low;
    const double high = noyau_log2_parts_f64(x, &low), first = noyau_first_f64(y);
    *tail = (y - first) * high + y * low;
    return first * high;
}

/* 2^(z + tail) for |z| <= 1100. */
NOYAU_INLINE double noyau_exp2_parts_f64(double z, double tail) {
    const double shifted = z + tail + (0x1.8p52 + 2046), exact = z - (shifted - (0x1.8p52 + 2046));
    const double w = noyau_first_f64(exact + tail);
    const double u = w * 0x1.62e42p-1, v = (tail - (w - exact)) * 0.6931471805599453 + w * 0x1.fdf473de6af28p-22;
    const double sum = u + v;
    double rest;
    const double value = noyau_exp_reduced_f64(sum, (sum - u) - v, &rest);
    return noyau_scale_f64(value + rest, shifted);
}

/* x^y for 0 < x < infinity and |y| <= 2^66. */
NOYAU_INLINE double noyau_power_finite_f64(double x, double y) {
    double tail;
    const double z = noyau_exponent_f64(x, y, &tail);
    const double most = z > 1100 ? 1100 : z, bounded = most < -1100 ? -1100 : most;
    return noyau_exp2_parts_f64(bounded, bounded == z ? tail : 0);
}

/* x^y as noyau_pow_f32. 1.0 ulp. */
NOYAU_INLINE double noyau_pow_f64(double x, double exponent) {
    const double y = noyau_rounded_f64(exponent), a = fabs(x), most = noyau_choose_f64(y > 0x1p66, 0x1p66, y);
    const double size = noyau_power_finite_f64(a, noyau_choose_f64(most < -0x1p66, -0x1p66, most));
    const double end = noyau_choose_f64((a == 0) != (y < 0), 0, INFINITY);
    const double with_end = noyau_choose_f64((a == 0) | (a == INFINITY), end, size), half = y * 0.5;
    const int whole = rint(y) == y, odd = whole & (rint(half) != half);
    const double with_sign = noyau_odd_sign_f64(with_end, x, odd);
    const int bad = ((x < 0) & (a < INFINITY) & !whole) | (x != x) | (y != y);
    const double result = noyau_choose_f64(bad, NAN, with_sign);
    return noyau_choose_f64((y == 0) | (x == 1), 1, result);
}
