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

/* By half turns. 0.6 ulp, for all x. */
NOYAU_INLINE float noyau_sin_f32(float x) {
    double whole;
    const double wide = x, r = noyau_wide_turn(wide, 2, 0, &whole);
    const double y = noyau_wide_sin_half(r, whole);
    return (float)(wide == 0 ? wide : y); /* -0 stays */
}

/* -sin about the odd quarters of a turn. 0.6 ulp, for all x. */
NOYAU_INLINE float noyau_cos_f32(float x) {
    double whole;
    const double r = noyau_wide_turn(x, 2, 0.5, &whole);
    return (float)noyau_wide_sin_half(r, whole + 0.5);
}

/* sin / cos, each minimax for an eighth of a turn; about the odd quarters, -cos / sin. 0.6 ulp, for all x. */
NOYAU_INLINE float noyau_tan_f32(float x) {
    double whole;
    const double wide = x, r = noyau_wide_turn(wide, 4, 0, &whole), z = r * r;
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
    const double y = (odd ? -cosine : sine) / (odd ? sine : cosine);
    return (float)(wide == 0 ? wide : y); /* -0 stays */
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

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_sin_f64(double x) {
    return sin(x);
}

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_cos_f64(double x) {
    return cos(x);
}

/* The C library's. 1.0 ulp. */
NOYAU_INLINE double noyau_tan_f64(double x) {
    return tan(x);
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
