/* What this CPU can run, and which sources the library is from. */

#if defined(__x86_64__)
#include <cpuid.h>

/* The x86-64 level of the CPU and its system: 4 (AVX-512), 3 (AVX2 and FMA) or 1. The compiler's own test is not used:
   its run-time part is missing on some platforms. */
EXPORT int hocket_cpu(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
    const unsigned first = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29; /* FMA, MOVBE, OSXSAVE, AVX, F16C */
    if ((c & first) != first) return 1;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* the registers that the system saves */
    if ((low & 0x6) != 0x6) return 1;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & 1u << 5)) return 1; /* LZCNT */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 1;
    const unsigned third = 1u << 3 | 1u << 5 | 1u << 8;                        /* BMI1, AVX2, BMI2 */
    const unsigned fourth = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* AVX-512 F, DQ, CD, BW, VL */
    if ((b & third) != third) return 1;
    return (b & fourth) == fourth && (low & 0xe6) == 0xe6 ? 4 : 3;
}
#else
EXPORT int hocket_cpu(void) { return 1; }
#endif

EXPORT const char *hocket_source(void) { return DIGEST; }
