/* r with x = (r + whole/parts) turns but for whole turns; whole - shift is a whole number, |r| <= 1/(2 parts).
   1/(2 pi) is cut into chunks of 26 bits, so that a float times a chunk is exact and its whole turns can be
   dropped, however large x is; r is summed from the top, where it cancels exactly. */
NOYAU_INLINE double noyau_wide_turn(double x, double parts, double shift, double *whole) {
    const double p0 = x * 0x1.45f307p-3, f0 = p0 - rint(p0);
    const double p1 = x * -0x1.1b1bbfp-30, f1 = p1 - rint(p1);
    const double p2 = x * 0x1.4a7f0ap-56, f2 = p2 - rint(p2);
    const double p3 = x * -0x1.505c16p-83, f3 = p3 - rint(p3);
    const double p4 = x * 0x1.a6ee06p-109, f4 = p4 - rint(p4);
    const double p5 = x * 0x1.b6295993c439p-134;
    *whole = rint(((f0 + f1) + (f2 + f3) + (f4 + p5)) * parts - shift) + shift;
    return f0 - *whole / parts + f1 + f2 + f3 + f4 + p5;
}

/* sin(2 pi r), for |r| <= 1/4, turned round where `odd` is an odd number: r p(r^2), p minimax. */
NOYAU_INLINE double noyau_wide_sin_half(double r, double odd) {
    const double z = r * r;
    double p = -14.380726179905947;
    p = p * z + 42.007701187003285;
    p = p * z - 76.70416544484657;
    p = p * z + 81.60522359344465;
    p = p * z - 41.34170209629227;
    p = p * z + 6.283185307046695;
    const uint64_t sign = noyau_bits_f64(odd + 0x1.8p52) << 63;
    return noyau_from_bits_f64(noyau_bits_f64(p * r) ^ sign);
}

/* r with x = m pi/2 + r + *low for |x| <= 12800; pi/2 in parts of 11 bits: what cancels is exact. */
NOYAU_INLINE float noyau_turned_f32(float x, float m, float *low) {
    const float most = x - m * 0x1.92p+0f - m * 0x1.fb4p-12f, r = most - m * 0x1.444p-24f;
    *low = (most - r) - m * 0x1.444p-24f - m * 0x1.68c234p-39f;
    return r;
}

/* sin(r + low) for |r| <= pi/4, low below its last bits: r + r^3 p(r^2), p minimax. */
NOYAU_INLINE float noyau_sin_part_f32(float r, float low) {
    const float z = r * r;
    float p = -0.00019518597f;
    p = p * z + 0.008332191f;
    p = p * z - 0.16666655f;
    return copysignf(p * z * r + low + r, r); /* -0 stays */
}

/* cos(r + low) as noyau_sin_part_f32: 1 - r^2/2 + r^4 p(r^2), p minimax. */
NOYAU_INLINE float noyau_cos_part_f32(float r, float low) {
    const float z = r * r, half = 0.5f * z, high = 1 - half;
    float p = 2.443275e-5f;
    p = p * z - 0.0013887312f;
    p = p * z + 0.041666646f;
    return high + ((1 - high - half) + (p * z * z - r * low));
}

/* sin(x + first pi/2) for |x| <= 12800, by quarters of a turn. */
NOYAU_INLINE float noyau_turn_near_f32(float x, uint32_t first) {
    const float t = x * 0.63661975f + 0x1.8p23f;
    float low;
    const float r = noyau_turned_f32(x, t - 0x1.8p23f, &low);
    const uint32_t quarters = noyau_bits_f32(t) + first;
    const float sine = noyau_sin_part_f32(r, low), cosine = noyau_cos_part_f32(r, low);
    const float y = quarters & 1 ? cosine : sine;
    return noyau_from_bits_f32(noyau_bits_f32(y) ^ ((quarters & 2) << 30));
}

/* sin(x) for |x| <= 12800. */
NOYAU_INLINE float noyau_sin_near_f32(float x) {
    return noyau_turn_near_f32(x, 0);
}

/* cos(x) for |x| <= 12800. */
NOYAU_INLINE float noyau_cos_near_f32(float x) {
    return noyau_turn_near_f32(x, 1);
}

/* tan(x) for |x| <= 12800: r + r^3 p(r^2), p minimax, for an eighth of a turn; about the odd quarters, -1 / tan. */
NOYAU_INLINE float noyau_tan_near_f32(float x) {
    const float t = x * 0.63661975f + 0x1.8p23f;
    float low;
    const float r = noyau_turned_f32(x, t - 0x1.8p23f, &low), z = r * r;
    float p = 0.004426587f;
    p = p * z - 1.7446126e-5f;
    p = p * z + 0.0109249465f;
    p = p * z + 0.021245535f;
    p = p * z + 0.05406758f;
    p = p * z + 0.13332589f;
    p = p * z + 0.33333352f;
    const float y = copysignf(p * z * r + (low * z + low) + r, r); /* -0 stays */
    return noyau_bits_f32(t) & 1 ? -1 / y : y;
}

/* By half turns. 1.0 ulp, for all x. */
NOYAU_INLINE float noyau_sin_f32(float x) {
    double whole;
    const double r = noyau_wide_turn(x, 2, 0, &whole);
    const float far = (float)noyau_wide_sin_half(r, whole);
    return fabsf(x) > 12800 ? far : noyau_sin_near_f32(x);
}

/* -sin about the odd quarters of a turn. 1.0 ulp, for all x. */
NOYAU_INLINE float noyau_cos_f32(float x) {
    double whole;
    const double r = noyau_wide_turn(x, 2, 0.5, &whole);
    const float far = (float)noyau_wide_sin_half(r, whole + 0.5);
    return fabsf(x) > 12800 ? far : noyau_cos_near_f32(x);
}

/* sin / cos, each minimax for an eighth of a turn; about the odd quarters, -cos / sin. */
NOYAU_INLINE double noyau_wide_tan(double x) {
    double whole;
    const double r = noyau_wide_turn(x, 4, 0, &whole), z = r * r;
    double sine = 41.468948465363475;
    sine = sine * z - 76.69774860515005;
    sine = sine * z + 81.60520359654306;
    sine = sine * z - 41.341702150030756;
    sine = sine * z + 6.283185307150943;
    double cosine = 59.20099745647847;
    cosine = cosine * z - 85.44224853332173;
    cosine = cosine * z + 64.9393103347987;
    cosine = cosine * z - 19.739208632040196;
    cosine = cosine * z + 0.9999999999437932;
    sine = sine * r;
    const double half = whole * 0.5;
    const int odd = rint(half) != half;
    return (odd ? -cosine : sine) / (odd ? sine : cosine);
}

/* By quarters of a turn. 2.0 ulp, for all x. */
NOYAU_INLINE float noyau_tan_f32(float x) {
    const float far = (float)noyau_wide_tan(x);
    return fabsf(x) > 12800 ? far : noyau_tan_near_f32(x);
}

/* asin(x) for x in [0, 1/2]: x + x^3 p(x^2), p minimax. */
NOYAU_INLINE double noyau_wide_asin_part(double x, double z) {
    double p = 0.032942893840070014;
    p = p * z + 0.001948084405324903;
    p = p * z + 0.020658855333137202;
    p = p * z + 0.021863123262048652;
    p = p * z + 0.030426818596573608;
    p = p * z + 0.044640689959756515;
    p = p * z + 0.07500005032299444;
    p = p * z + 0.1666666662687815;
    return p * z * x + x;
}

/* Beyond 1/2, pi/2 - 2 asin(sqrt((1 - x)/2)). 0.6 ulp. */
NOYAU_INLINE float noyau_asin_f32(float x) {
    const double a = fabs((double)x), far = 0.5 * (1 - a);
    const double z = a > 0.5 ? far : a * a;
    const double part = noyau_wide_asin_part(a > 0.5 ? sqrt(far) : a, z);
    return copysignf((float)(a > 0.5 ? 1.5707963267948966 - 2 * part : part), x);
}

/* pi/2 - asin(x); beyond 1/2, 2 asin(sqrt((1 - x)/2)). 0.6 ulp. */
NOYAU_INLINE float noyau_acos_f32(float x) {
    const double wide = x, a = fabs(wide), far = 0.5 * (1 - a);
    const double z = a > 0.5 ? far : a * a;
    const double part = noyau_wide_asin_part(a > 0.5 ? sqrt(far) : a, z);
    const double right = a > 0.5 ? 2 * part : 1.5707963267948966 - part; /* acos(a) */
    return (float)(wide < 0 ? 3.141592653589793 - right : right);
}

/* atan(x) for x in [0, 1]: x + x^3 p(x^2), p minimax. */
NOYAU_INLINE double noyau_wide_atan_part(double x) {
    const double z = x * x;
    double p = 0.0004493265909408363;
    p = p * z - 0.003378109627344768;
    p = p * z + 0.011913566875993176;
    p = p * z - 0.02675011961154884;
    p = p * z + 0.044371216403778474;
    p = p * z - 0.06068975583964447;
    p = p * z + 0.07515510046582322;
    p = p * z - 0.09054990645639725;
    p = p * z + 0.1110637620272861;
    p = p * z - 0.14285343971374215;
    p = p * z + 0.19999985359568834;
    p = p * z - 0.3333333313045246;
    return p * z * x + x;
}

/* Beyond 1, pi/2 - atan(1/x). 0.6 ulp. */
NOYAU_INLINE float noyau_atan_f32(float x) {
    const double a = fabs((double)x);
    const double part = noyau_wide_atan_part(a > 1 ? 1 / a : a);
    return copysignf((float)(a > 1 ? 1.5707963267948966 - part : part), x);
}

/* The angle of the point (x, y). 0.6 ulp. */
NOYAU_INLINE float noyau_atan2_f32(float y, float x) {
    const double ax = fabs((double)x), ay = fabs((double)y);
    const double high = ay > ax ? ay : ax, low = ay > ax ? ax : ay;
    const double ratio = low == high ? high > 0 : low / high; /* 0/0 is 0, infinity/infinity is 1 */
    const double part = noyau_wide_atan_part(ratio);
    const double right = ay > ax ? 1.5707963267948966 - part : part;
    return copysignf((float)(copysign(1.0, (double)x) < 0 ? 3.141592653589793 - right : right), y);
}

/* r with x = m pi/2 + r + *low for |x| <= 10^6; pi/2 in parts of 33 bits: what cancels is exact. */
NOYAU_INLINE double noyau_turned_f64(double x, double m, double *low) {
    const double most = x - m * 0x1.921fb544p+0, next = most - m * 0x1.0b4611a6p-34;
    const double rest = m * 0x1.0b4611a6p-34 - (most - next) + m * 0x1.3198a2ep-69, r = next - rest;
    *low = (next - r) - rest - m * 0x1.b839a252049c1p-104;
    return r;
}

/* sin(r + low) for |r| <= pi/4, low below its last bits: r + r^3 p(r^2), p minimax. */
NOYAU_INLINE double noyau_sin_part_f64(double r, double low) {
    const double z = r * r;
    double p = 1.5896776002287433e-10;
    p = p * z - 2.505075818073898e-8;
    p = p * z + 2.7557313695739333e-6;
    p = p * z - 0.00019841269829832506;
    p = p * z + 0.00833333333332247;
    p = p * z - 0.16666666666666632;
    return copysign(p * z * r + low + r, r); /* -0 stays */
}

/* cos(r + low) as noyau_sin_part_f64: 1 - r^2/2 + r^4 p(r^2), p minimax. */
NOYAU_INLINE double noyau_cos_part_f64(double r, double low) {
    const double z = r * r, half = 0.5 * z, high = 1 - half;
    double p = -1.135988672426279e-11;
    p = p * z + 2.0875728551230965e-9;
    p = p * z - 2.755731439716848e-7;
    p = p * z + 2.480158728966367e-5;
    p = p * z - 0.001388888888887447;
    p = p * z + 0.0416666666666666;
    return high + ((1 - high - half) + (p * z * z - r * low));
}

/* sin(x + first pi/2) for |x| <= 10^6, by quarters of a turn. */
NOYAU_INLINE double noyau_turn_near_f64(double x, uint64_t first) {
    const double t = x * 0.6366197723675814 + 0x1.8p52;
    double low;
    const double r = noyau_turned_f64(x, t - 0x1.8p52, &low);
    const uint64_t quarters = noyau_bits_f64(t) + first;
    const double sine = noyau_sin_part_f64(r, low), cosine = noyau_cos_part_f64(r, low);
    const double y = quarters & 1 ? cosine : sine;
    return noyau_from_bits_f64(noyau_bits_f64(y) ^ ((quarters & 2) << 62));
}

/* sin(x) for |x| <= 10^6. */
NOYAU_INLINE double noyau_sin_near_f64(double x) {
    return noyau_turn_near_f64(x, 0);
}

/* cos(x) for |x| <= 10^6. */
NOYAU_INLINE double noyau_cos_near_f64(double x) {
    return noyau_turn_near_f64(x, 1);
}

/* tan(x) for |x| <= 10^6: sin / cos; about the odd quarters, -cos / sin. */
NOYAU_INLINE double noyau_tan_near_f64(double x) {
    const double t = x * 0.6366197723675814 + 0x1.8p52;
    double low;
    const double r = noyau_turned_f64(x, t - 0x1.8p52, &low);
    const double sine = noyau_sin_part_f64(r, low), cosine = noyau_cos_part_f64(r, low);
    const int odd = noyau_bits_f64(t) & 1;
    return (odd ? -cosine : sine) / (odd ? sine : cosine);
}

/* 1.0 ulp. Beyond 10^6 the C library's: glibc's have up to 14 near multiples of pi/2. */
NOYAU_INLINE double noyau_sin_f64(double x) {
    return fabs(x) > 1e6 ? sin(x) : noyau_sin_near_f64(x);
}

/* 1.0 ulp. Beyond 10^6 the C library's: glibc's have up to 14 near multiples of pi/2. */
NOYAU_INLINE double noyau_cos_f64(double x) {
    return fabs(x) > 1e6 ? cos(x) : noyau_cos_near_f64(x);
}

/* 2.5 ulp. Beyond 10^6 the C library's: glibc's have up to 14 near multiples of pi/2. */
NOYAU_INLINE double noyau_tan_f64(double x) {
    return fabs(x) > 1e6 ? tan(x) : noyau_tan_near_f64(x);
}

/* p with asin(x) = x + x z p for z = x^2 up to 1/4, p minimax. */
NOYAU_INLINE double noyau_asin_slope_f64(double z) {
    double p = 0.03268111532157906;
    p = p * z - 0.02108402666177979;
    p = p * z + 0.021768294235722307;
    p = p * z + 0.0036810285570876775;
    p = p * z + 0.01078708285398877;
    p = p * z + 0.011397671301939975;
    p = p * z + 0.013980975306931013;
    p = p * z + 0.01735159881078904;
    p = p * z + 0.02237221574122801;
    p = p * z + 0.030381942680283512;
    p = p * z + 0.044642857175203096;
    p = p * z + 0.07499999999970158;
    p = p * z + 0.16666666666666763;
    return p;
}

/* asin(sqrt(z)) as high + *low; high is sqrt(z) in 21 bits, of which the square is exact. */
NOYAU_INLINE double noyau_asin_root_f64(double z, double *low) {
    const double root = sqrt(z);
    const double high = noyau_from_bits_f64(noyau_bits_f64(root) & 0xffffffff00000000);
    const double lost = z > 0 ? (z - high * high) / (root + high) : 0;
    *low = noyau_asin_slope_f64(z) * z * root + lost;
    return high;
}

/* Beyond 1/2, pi/2 - 2 asin(sqrt((1 - x)/2)), pi in two parts. 1.0 ulp. */
NOYAU_INLINE double noyau_asin_f64(double x) {
    const double a = fabs(x);
    double low;
    const double near = noyau_asin_slope_f64(a * a) * (a * a) * a + a;
    const double high = noyau_asin_root_f64(0.5 * (1 - a), &low);
    const double far = 0.7853981633974483 - 2 * high + (6.123233995736766e-17 - 2 * low) + 0.7853981633974483;
    return copysign(a < 0.5 ? near : far, x);
}

/* pi/2 - asin(x); beyond 1/2, 2 asin(sqrt((1 - x)/2)), and below -1/2 what is left of pi. 1.0 ulp. */
NOYAU_INLINE double noyau_acos_f64(double x) {
    const double a = fabs(x);
    double low;
    const double near = 1.5707963267948966 - (x - (6.123233995736766e-17 - noyau_asin_slope_f64(a * a) * (a * a) * x));
    const double high = noyau_asin_root_f64(0.5 * (1 - a), &low);
    const double left = 3.141592653589793 - 2 * (high + (low - 6.123233995736766e-17));
    const double right = 2 * (high + low);
    const double far = x < 0 ? left : right;
    return a < 0.5 ? near : far;
}

/* atan(t) for |t| <= 1/2, less t: t^3 p(t^2), p minimax. */
NOYAU_INLINE double noyau_atan_rest_f64(double t) {
    const double z = t * t;
    double p = -0.008298201412654724;
    p = p * z + 0.02354668944263379;
    p = p * z - 0.03704174943796132;
    p = p * z + 0.04586259133895014;
    p = p * z - 0.05229159997631225;
    p = p * z + 0.05877653010698653;
    p = p * z - 0.06666204384318487;
    p = p * z + 0.07692275838431155;
    p = p * z - 0.09090907598661328;
    p = p * z + 0.11111111065929145;
    p = p * z - 0.14285714284902262;
    p = p * z + 0.19999999999992585;
    p = p * z - 0.3333333333333331;
    return p * z * t;
}

/* As the angle between (1, x) and one of three directions, 0, 1/8 and 1/4 of a turn, in two parts. 1.5 ulp. */
NOYAU_INLINE double noyau_atan_f64(double x) {
    const double a = fabs(x);
    const int near = a < 0.5, far = a > 2;
    const double rise = near ? a : far ? -1 : a - 1, run = near ? 1 : far ? a : a + 1;
    const double base = near ? 0 : far ? 1.5707963267948966 : 0.7853981633974483;
    const double low = near ? 0 : far ? 6.123233995736766e-17 : 3.061616997868383e-17;
    const double t = rise / run;
    return copysign(base + (noyau_atan_rest_f64(t) + low + t), x);
}

/* The angle of the point (x, y), from the nearest of the axes and the lines between them. 2.0 ulp. */
NOYAU_INLINE double noyau_atan2_f64(double y, double x) {
    const double ax = fabs(x), ay = fabs(y), scale = ax + ay > 1e300 ? 0.5 : 1;
    const double high = (ay > ax ? ay : ax) * scale, low = (ay > ax ? ax : ay) * scale;
    const int near = low + low < high;
    const double ratio = (near ? low : low - high) / (near ? high : low + high);
    const double t = low == high ? 0 : ratio; /* 0/0 and infinity/infinity */
    const double eighths = high > 0 ? near ? 0 : 1 : 0; /* of half a turn, in quarters */
    const double turned = ay > ax ? 2 - eighths : eighths, all = copysign(1.0, x) < 0 ? 4 - turned : turned;
    const double angle = noyau_atan_rest_f64(t) + t;
    const int back = (ay > ax) != (copysign(1.0, x) < 0);
    const double part = (back ? -angle : angle) + all * 3.061616997868383e-17;
    return copysign(all * 0.7853981633974483 + part, y);
}
