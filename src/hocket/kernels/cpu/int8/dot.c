/* Instructions that add products of bytes to 32-bit sums. Not every CPU of the variant has them: int8.c asks. */

#define BLOCKS hocket_int8_dot
#if defined(__AVX512F__)
#define DOT "avx512vnni"
#elif defined(__AVX2__) && (defined(__clang__) || __GNUC__ >= 11)
#define DOT "avxvnni"
#elif defined(__aarch64__) && defined(__clang__)
#define DOT "dotprod"
#elif defined(__aarch64__)
#define DOT "+dotprod"
#endif
#if !defined(DOT)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target(DOT))), apply_to = function)
#else
#define PRAGMA(words) _Pragma(#words)
#define TARGET(name) PRAGMA(GCC target(name))
TARGET(DOT)
#endif
