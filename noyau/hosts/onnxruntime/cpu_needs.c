/* The CPU features that the kernels of this library may use: data only, compiled with the kernels'
   options, so that the compiler itself lists the instructions that it was allowed. The order is
   that of `cpu_has_all`, which reads the same registers of the CPU on which the library runs. */
#include <stdint.h>

extern const uint32_t noyau_cpu_needs[6];
__attribute__((visibility("hidden"))) const uint32_t noyau_cpu_needs[6] = {
    /* leaf 1, ecx */
    0
#ifdef __SSE3__
        | 1u << 0
#endif
#ifdef __PCLMUL__
        | 1u << 1
#endif
#ifdef __SSSE3__
        | 1u << 9
#endif
#ifdef __FMA__
        | 1u << 12
#endif
#if defined(__x86_64__) && defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
        | 1u << 13
#endif
#ifdef __SSE4_1__
        | 1u << 19
#endif
#ifdef __SSE4_2__
        | 1u << 20
#endif
#ifdef __MOVBE__
        | 1u << 22
#endif
#ifdef __POPCNT__
        | 1u << 23
#endif
#ifdef __AES__
        | 1u << 25
#endif
#ifdef __AVX__
        | 1u << 28
#endif
#ifdef __F16C__
        | 1u << 29
#endif
    ,
    /* leaf 7, ebx */
    0
#ifdef __BMI__
        | 1u << 3
#endif
#ifdef __AVX2__
        | 1u << 5
#endif
#ifdef __BMI2__
        | 1u << 8
#endif
#ifdef __AVX512F__
        | 1u << 16
#endif
#ifdef __AVX512DQ__
        | 1u << 17
#endif
#ifdef __ADX__
        | 1u << 19
#endif
#ifdef __AVX512IFMA__
        | 1u << 21
#endif
#ifdef __AVX512CD__
        | 1u << 28
#endif
#ifdef __SHA__
        | 1u << 29
#endif
#ifdef __AVX512BW__
        | 1u << 30
#endif
#ifdef __AVX512VL__
        | 1u << 31
#endif
    ,
    /* leaf 7, ecx */
    0
#ifdef __AVX512VBMI__
        | 1u << 1
#endif
#ifdef __AVX512VBMI2__
        | 1u << 6
#endif
#ifdef __GFNI__
        | 1u << 8
#endif
#ifdef __VAES__
        | 1u << 9
#endif
#ifdef __VPCLMULQDQ__
        | 1u << 10
#endif
#ifdef __AVX512VNNI__
        | 1u << 11
#endif
#ifdef __AVX512BITALG__
        | 1u << 12
#endif
#ifdef __AVX512VPOPCNTDQ__
        | 1u << 14
#endif
    ,
    /* leaf 7, edx */
    0
#ifdef __AVX512VP2INTERSECT__
        | 1u << 8
#endif
#ifdef __AVX512FP16__
        | 1u << 23
#endif
    ,
    /* leaf 7.1, eax */
    0
#ifdef __AVXVNNI__
        | 1u << 4
#endif
#ifdef __AVX512BF16__
        | 1u << 5
#endif
#ifdef __AVXIFMA__
        | 1u << 23
#endif
    ,
    /* leaf 0x80000001, ecx */
    0
#if defined(__x86_64__) && defined(__LAHF_SAHF__)
        | 1u << 0
#endif
#ifdef __LZCNT__
        | 1u << 5
#endif
#ifdef __SSE4A__
        | 1u << 6
#endif
#ifdef __XOP__
        | 1u << 11
#endif
#ifdef __FMA4__
        | 1u << 16
#endif
#ifdef __TBM__
        | 1u << 21
#endif
};
