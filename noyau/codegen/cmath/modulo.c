/* rest less the whole multiples of y power that it holds, all exact; inverse is 1 / y, rounded. */
NOYAU_INLINE double noyau_wide_fmod_step(double rest, double y, double inverse, double power) {
    return rest - trunc(rest * inverse / power) * (y * power);
}

/* The rest of x / y with the sign of x, by long division, 28 bits of the quotient at a time. Exact. 0.0 ulp. */
NOYAU_INLINE float noyau_fmod_f32(float x, float y) {
    const double b = fabs((double)y) == INFINITY ? 0x1p130 : fabs((double)y), c = 1 / b;
    double rest = fabs((double)x);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p252);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p224);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p196);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p168);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p140);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p112);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p84);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p56);
    rest = noyau_wide_fmod_step(rest, b, c, 0x1p28);
    rest = noyau_wide_fmod_step(rest, b, c, 1);
    rest = rest < 0 ? rest + b : rest >= b ? rest - b : rest; /* the inverse was rounded */
    return copysignf((float)rest, x);
}

/* The C library's. 0.0 ulp. */
NOYAU_INLINE double noyau_fmod_f64(double x, double y) {
    return fmod(x, y);
}

/* The rest of x / y with the sign of y. 0.5 ulp. */
NOYAU_INLINE float noyau_floor_mod_f32(float x, float y) {
    const float rest = noyau_fmod_f32(x, y);
    return rest == 0 ? copysignf(rest, y) : (rest < 0) != (y < 0) ? rest + y : rest;
}

/* As noyau_floor_mod_f32. 0.5 ulp. */
NOYAU_INLINE double noyau_floor_mod_f64(double x, double y) {
    const double rest = fmod(x, y);
    return rest == 0 ? copysign(rest, y) : (rest < 0) != (y < 0) ? rest + y : rest;
}
