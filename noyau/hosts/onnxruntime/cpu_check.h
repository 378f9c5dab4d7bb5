/* Whether this CPU has all features that the kernels of this library may use (cpu_needs.c).
   It is compiled for the oldest CPU, since it runs on any. */
#ifndef NOYAU_CPU_CHECK
#define NOYAU_CPU_CHECK
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>

extern __attribute__((visibility("hidden"))) const uint32_t noyau_cpu_needs[6];

/* The registers of noyau_cpu_needs on this CPU, without features whose state its system does not save. */
static void read_cpu(uint32_t has[6]) {
    uint32_t a, b, c, d, vectors = 0;
    for (int i = 0; i < 6; i++) has[i] = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) has[0] = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        has[1] = b, has[2] = c, has[3] = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) has[4] = a;
    }
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) has[5] = c;
    if (has[0] >> 27 & 1) {
        __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        vectors = a;
    }
    if ((vectors & 0x06) != 0x06) has[0] &= ~(1u << 28);
    if ((vectors & 0xe6) != 0xe6) has[1] &= ~(1u << 16);
#ifdef NOYAU_SIMULATED_LEVEL /* a test's CPU: x86-64, -v2 or -v3 */
    static const uint32_t ebx[4] = {0, 0, 0, 1u << 3 | 1u << 5 | 1u << 8};
    static const uint32_t ecx[4] = {0, 0, 0x00982201, 0x30d83201};
    has[0] &= ecx[NOYAU_SIMULATED_LEVEL], has[1] &= ebx[NOYAU_SIMULATED_LEVEL];
    has[2] = has[3] = has[4] = 0, has[5] &= NOYAU_SIMULATED_LEVEL == 3 ? 0x21 : NOYAU_SIMULATED_LEVEL == 2;
#endif
}

static int cpu_has_all(void) {
    uint32_t has[6];
    read_cpu(has);
    for (int i = 0; i < 6; i++)
        if (noyau_cpu_needs[i] & ~has[i]) return 0;
    return 1;
}
#else
static int cpu_has_all(void) { return 1; }
#endif
#endif
