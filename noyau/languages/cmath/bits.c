/* The bits of a float, and the float of some bits. */
static inline uint32_t noyau_bits_f32(float x) {
    union { float value; uint32_t bits; } cell = {x};
    return cell.bits;
}

static inline float noyau_from_bits_f32(uint32_t x) {
    union { uint32_t bits; float value; } cell = {x};
    return cell.value;
}

static inline uint64_t noyau_bits_f64(double x) {
    union { double value; uint64_t bits; } cell = {x};
    return cell.bits;
}

static inline double noyau_from_bits_f64(uint64_t x) {
    union { uint64_t bits; double value; } cell = {x};
    return cell.value;
}
