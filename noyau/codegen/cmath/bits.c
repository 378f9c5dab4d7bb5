/* The bits of a float, and the float of some bits. */
NOYAU_INLINE uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

NOYAU_INLINE float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

NOYAU_INLINE uint64_t noyau_bits_f64(double x) {
    union { double value; uint64_t bits; } cell = {x};
    return cell.bits;
}

NOYAU_INLINE double noyau_from_bits_f64(uint64_t x) {
    union { uint64_t bits; double value; } cell = {x};
    return cell.value;
}

/* yes or no, by their bits: as ?:, of which compilers make branches again where they know a value. */
NOYAU_INLINE double noyau_choose_f64(int condition, double yes, double no) {
    const uint64_t mask = -(uint64_t)condition;
    return noyau_from_bits_f64((noyau_bits_f64(yes) & mask) | (noyau_bits_f64(no) & ~mask));
}
