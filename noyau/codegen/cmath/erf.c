/* Near 0: x + x p(x^2); else 1 - e^q(|x|), where q is log(erfc); both minimax. From 4 on it is 1. 1.5 ulp. */
NOYAU_INLINE float noyau_erf_f32(float x) {
    const float a = fabsf(x), z = x * x;
    float p = 7.92031e-5f;
    p = p * z - 0.0008030751f;
    p = p * z + 0.0051907334f;
    p = p * z - 0.026855126f;
    p = p * z + 0.11283618f;
    p = p * z - 0.3761263f;
    p = p * z + 0.12837917f;
    float q = 0.0001863555f;
    q = q * a - 0.0029474346f;
    q = q * a + 0.021837225f;
    q = q * a - 0.10310517f;
    q = q * a - 0.6381464f;
    q = q * a - 1.1270884f;
    q = q * a - 0.0003416612f;
    const float y = a < 1 ? p * a + a : 1 - noyau_exp_within_f32(q);
    return copysignf(a > 4 ? 1 : y, x);
}

/* e^(-x^2) p(t) with t = (|x| - 3)/(|x| + 3), p minimax; 2 less that where x < 0. 0.6 ulp. */
NOYAU_INLINE float noyau_erfc_f32(float x) {
    const double wide = x;
    const double a = fabs(wide) > 11 ? 11 : fabs(wide); /* it is 0 or 2 long before */
    const double t = (a - 3) / (a + 3);
    double p = -6.251446964316787e-7;
    p = p * t - 8.256326562416038e-6;
    p = p * t - 1.0133877778124876e-5;
    p = p * t + 6.521122264459754e-5;
    p = p * t + 4.41332896861008e-5;
    p = p * t - 0.0005976598362552207;
    p = p * t + 0.0007079865274863161;
    p = p * t + 0.004269264580500246;
    p = p * t - 0.024392527751387817;
    p = p * t + 0.0716658252287311;
    p = p * t - 0.1501159348015948;
    p = p * t + 0.24560380210218674;
    p = p * t - 0.3262335600761055;
    p = p * t + 0.17900115117953752;
    const double y = p * noyau_wide_exp2_within(a * a * -1.4426950408889634, 0);
    return (float)(wide < 0 ? 2 - y : y);
}

/* Near 0: x + x p(x^2); else 1 - e^(-x^2) q(t) with t = (|x| - 3)/(|x| + 3). From 6 on it is 1. 1.5 ulp. */
NOYAU_INLINE double noyau_erf_f64(double x) {
    const double a = fabs(x) > 6 ? 6 : fabs(x), z = a * a;
    double p = -7.786938390154212e-10;
    p = p * z + 1.3714781571584358e-8;
    p = p * z - 1.6207126917654493e-7;
    p = p * z + 1.6447225618123341e-6;
    p = p * z - 1.492471852033623e-5;
    p = p * z + 0.00012055293794435248;
    p = p * z - 0.0008548325931283662;
    p = p * z + 0.005223977605986689;
    p = p * z - 0.026866170643060065;
    p = p * z + 0.11283791670943442;
    p = p * z - 0.37612638903183476;
    p = p * z + 0.12837916709551256;
    const double t = (a - 3) / (a + 3);
    double q = 1.527424526221575e-5;
    q = q * t + 0.00010316522618000012;
    q = q * t + 7.66729084360557e-5;
    q = q * t - 0.0005808851113192838;
    q = q * t + 0.0007132710271153603;
    q = q * t + 0.004270382108791323;
    q = q * t - 0.024392322626693917;
    q = q * t + 0.07166585068890532;
    q = q * t - 0.15011593632005868;
    q = q * t + 0.2456038016632749;
    q = q * t - 0.3262335600460312;
    q = q * t + 0.17900115118135082;
    const double far = 1 - q * noyau_exp_f64(-z);
    return copysign(a < 1 ? p * a + a : far, x);
}

/* The C library's. 5.0 ulp. */
NOYAU_INLINE double noyau_erfc_f64(double x) {
    return erfc(x);
}
