/* Random numbers in kernels: the functions of curand_kernel.h, of another generator, so that the numbers are others.
   Each generator is one counter, hashed; a state is read and written where the kernel passes it, and so is watched. */
#pragma once
#include "noyau_cuda.h"
#include <cmath>

struct noyau_random {
    unsigned long long key, count;
    int has_normal;
    double normal;
};
typedef noyau_random curandStateXORWOW_t, curandStateXORWOW, curandState_t, curandState, curandStateMRG32k3a_t,
    curandStateMRG32k3a;
struct curandStatePhilox4_32_10 : noyau_random {};  /* another type: numbers of it come in fours */
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

NOYAU_MADE unsigned long long noyau_hash(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
NOYAU_MADE void curand_init(
    unsigned long long seed, unsigned long long sequence, unsigned long long offset, noyau_random *state) {
    *state = noyau_random{noyau_hash(noyau_hash(seed) + sequence), offset, 0, 0};
}
NOYAU_MADE void skipahead(unsigned long long count, noyau_random *state) { state->count += count; }
NOYAU_MADE void skipahead_sequence(unsigned long long count, noyau_random *state) {
    state->key = noyau_hash(state->key + count);
}
NOYAU_MADE unsigned curand(noyau_random *state) { return noyau_hash(state->key + state->count++) >> 32; }
NOYAU_MADE float curand_uniform(noyau_random *state) { return (curand(state) >> 8) * 0x1p-24f + 0x1p-24f; }
NOYAU_MADE double curand_uniform_double(noyau_random *state) {
    return (noyau_hash(state->key + state->count++) >> 11) * 0x1p-53 + 0x1p-53;
}
NOYAU_MADE double2 curand_normal2_double(noyau_random *state) {
    double size = std::sqrt(-2 * std::log(curand_uniform_double(state)));
    double angle = 6.283185307179586 * curand_uniform_double(state);
    return double2{size * std::cos(angle), size * std::sin(angle)};
}
NOYAU_MADE float2 curand_normal2(noyau_random *state) {
    double2 pair = curand_normal2_double(state);
    return float2{(float)pair.x, (float)pair.y};
}
NOYAU_MADE double curand_normal_double(noyau_random *state) {
    if (state->has_normal) return state->has_normal = 0, state->normal;
    double2 pair = curand_normal2_double(state);
    state->has_normal = 1, state->normal = pair.y;
    return pair.x;
}
NOYAU_MADE float curand_normal(noyau_random *state) { return curand_normal_double(state); }
NOYAU_MADE float curand_log_normal(noyau_random *state, float mean, float stddev) {
    return std::exp(mean + stddev * curand_normal(state));
}
NOYAU_MADE double curand_log_normal_double(noyau_random *state, double mean, double stddev) {
    return std::exp(mean + stddev * curand_normal_double(state));
}
NOYAU_MADE unsigned curand_poisson(noyau_random *state, double mean) {
    if (mean > 500) return std::fmax(0, std::floor(mean + std::sqrt(mean) * curand_normal_double(state) + 0.5));
    unsigned count = 0;
    for (double left = curand_uniform_double(state); left > std::exp(-mean); left *= curand_uniform_double(state)) count++;
    return count;
}

#define NOYAU_FOURS(name, four)                                                                                      \
    NOYAU_MADE four name##4(curandStatePhilox4_32_10 *state) {                                                   \
        auto a = name(state), b = name(state), c = name(state), d = name(state);                                    \
        return four{a, b, c, d};                                                                                    \
    }
NOYAU_FOURS(curand, uint4)
NOYAU_FOURS(curand_uniform, float4)
NOYAU_FOURS(curand_normal, float4)
#undef NOYAU_FOURS
NOYAU_MADE double2 curand_uniform2_double(curandStatePhilox4_32_10 *state) {
    double first = curand_uniform_double(state), second = curand_uniform_double(state);
    return double2{first, second};
}
