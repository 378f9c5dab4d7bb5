/* part / whole for 0 <= part <= 1 <= whole: a product with the inverse, which a loop over parts computes once, and what
   that leaves over in another one. Where products are fused with sums it has the quotient's bits, but for denormals;
   else it is within 2 units of its last place. */
NOYAU_INLINE float noyau_share_f32(float part, float whole) {
    const float inverse = 1 / whole;
    const float near = part * inverse;
    return near + (part - near * whole) * inverse;
}

/* The quotient of x / y, rounded down; infinite or NaN where y is 0. 0.5 ulp. */
NOYAU_INLINE float noyau_floor_divide_f32(float x, float y) {
    const double rest = noyau_fmod_f32(x, y), wide = y;
    const double whole = rint((x - rest) / wide) - ((rest != 0) & ((rest < 0) != (wide < 0)));
    const float quotient = x / y;
    const float rounded = (float)(whole == 0 ? copysign(0.0, quotient) : whole);
    return y == 0 ? quotient : rounded;
}

/* As noyau_floor_divide_f32. 2.0 ulp. */
NOYAU_INLINE double noyau_floor_divide_f64(double x, double y) {
    const double rest = fmod(x, y);
    const double whole = rint((x - rest) / y) - ((rest != 0) & ((rest < 0) != (y < 0)));
    const double rounded = whole == 0 ? copysign(0.0, x / y) : whole;
    return y == 0 ? x / y : rounded;
}
