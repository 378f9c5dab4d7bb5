static inline T noyau_abs_int(T a)
{
    return a < 0 ? (T)(0 - (U)a) : a;
}


static inline T noyau_abs_uint(T a)
{
    return a;
}


static inline T noyau_sign_int(T a)
{
    return (T)((a > 0) - (a < 0));
}


static inline T noyau_sign_uint(T a)
{
    return a > 0;
}


static inline T noyau_maximum_int(T a, T b)
{
    return a > b ? a : b;
}


static inline T noyau_minimum_int(T a, T b)
{
    return a < b ? a : b;
}


static inline T noyau_divide_int(T a, T b)
{
    return b == -1 ? (T)(0 - (U)a) : (T)(a / (b ? b : 1));
}


static inline T noyau_divide_uint(T a, T b)
{
    return a / (b ? b : 1);
}


static inline T noyau_fmod_int(T a, T b)
{
    return b == -1 ? 0 : (T)(a % (b ? b : 1));
}


static inline T noyau_fmod_uint(T a, T b)
{
    return a % (b ? b : 1);
}


static inline T noyau_floor_divide_int(T a, T b)
{
    if (b == -1) return (T)(0 - (U)a);
    if (!b) return a;
    return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}


static inline T noyau_floor_divide_uint(T a, T b)
{
    return a / (b ? b : 1);
}


static inline T noyau_floor_mod_int(T a, T b)
{
    if (b == -1 || !b) return 0;
    const T m = (T)(a % b);
    return m != 0 && (m < 0) != (b < 0) ? (T)(m + b) : m;
}


static inline T noyau_floor_mod_uint(T a, T b)
{
    return a % (b ? b : 1);
}


static inline T noyau_power_int(T a, T b)
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    U base = (U)a, made = 1;
    for (T left = b; left > 0; left /= 2) {
        if (left & 1) made = (U)(made * base);
        base = (U)(base * base);
    }
    return (T)made;
}


static inline T noyau_power_uint(T a, T b)
{
    T made = 1;
    for (T left = b; left > 0; left /= 2) {
        if (left & 1) made = (T)(made * a);
        a = (T)(a * a);
    }
    return made;
}


/* Of 16 bits by 15 an int would overflow. */
static inline T noyau_shift_left_int(T a, T b)
{
    return b >= 0 && b < (T)(8 * sizeof(T)) ? (T)((U)a * 1u << b) : 0;
}


static inline T noyau_shift_left_uint(T a, T b)
{
    return b < 8 * sizeof(T) ? (T)((uint64_t)a << b) : 0;
}


static inline T noyau_shift_right_int(T a, T b)
{
    return (T)(a >> (b >= 0 && b < (T)(8 * sizeof(T)) ? b : (T)(8 * sizeof(T) - 1)));
}


static inline T noyau_shift_right_uint(T a, T b)
{
    return b < 8 * sizeof(T) ? (T)(a >> b) : 0;
}
