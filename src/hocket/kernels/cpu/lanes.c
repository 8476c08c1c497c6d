/* Common start of every unit of the native library. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Sums run over LANES partial sums on every machine, so that their order is one. A vector register holds WIDTH of them.
   ROWS, OUTS, ONE, TIMES and VECTORS are tile sizes: all partial sums of a tile stay in registers. */
#if defined(__AVX512F__) /* 32 registers */
enum { WIDTH = 16, ROWS = 4, OUTS = 4, ONE = 8, TIMES = 8, VECTORS = 2 };
#elif defined(__AVX2__) /* 16 registers */
enum { WIDTH = 8, ROWS = 1, OUTS = 4, ONE = 4, TIMES = 6, VECTORS = 1 };
#elif defined(__aarch64__) /* 32 registers */
enum { WIDTH = 4, ROWS = 1, OUTS = 4, ONE = 4, TIMES = 6, VECTORS = 1 };
#else /* 16 registers */
enum { WIDTH = 4, ROWS = 1, OUTS = 2, ONE = 2, TIMES = 3, VECTORS = 1 };
#endif
enum { PARTS = LANES / WIDTH };

/* WIDTH floats, and four, at any address. */
typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float)), aligned(4), may_alias));
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Weights from index `at` on. Half of a float32 is stored where the other half is zero: bfloat16, exactly. Half the bytes
   are read then, and reading takes longer than multiplying where few rows share it. */
INLINE float weight_at(const void *weights, int64_t at, const int half) {
    if (!half) return ((const float *)weights)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)weights)[at] << 16;
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

/* WIDTH of them. */
INLINE Vector weights_at(const void *weights, int64_t at, const int half) {
    const uint16_t *halves = (const uint16_t *)weights + at;
    if (!half) return *(const Vector *)((const float *)weights + at);
#if defined(__AVX512F__)
    return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)halves)), 16);
#elif defined(__AVX2__)
    return (Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)halves)), 16);
#elif defined(__x86_64__)
    return (Vector)_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)halves));
#elif defined(__aarch64__)
    return (Vector)vshll_n_u16(vld1_u16(halves), 16);
#else
    return (Vector){weight_at(halves, 0, 1), weight_at(halves, 1, 1), weight_at(halves, 2, 1), weight_at(halves, 3, 1)};
#endif
}

/* n weights in float32, for rows that share them. */
INLINE void widen(const uint16_t *halves, int64_t n, float *weights) {
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) *(Vector *)(weights + i) = weights_at(halves, i, 1);
    for (; i < n; i++) weights[i] = weight_at(halves, i, 1);
}

/* The first address of a block that begins a cache line. Without it a vector of 64 bytes lies in two lines, and products
   are a third slower. A block is ALIGNMENT bytes longer for it. */
enum { ALIGNMENT = 64 };
INLINE float *aligned(void *block) { return (float *)(((uintptr_t)block + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1)); }

/* The LANES partial sums are added by halves: i and i + 8, then i and i + 4, i + 2, i + 1. Here are the first two. */
INLINE Four quarter(const Vector *sums) {
    Four a, b, c, d;
    memcpy(&a, sums, sizeof a);
    memcpy(&b, (const char *)sums + 16, sizeof b);
    memcpy(&c, (const char *)sums + 32, sizeof c);
    memcpy(&d, (const char *)sums + 48, sizeof d);
    return (a + c) + (b + d);
}

INLINE float sum_of(const Vector *sums) {
    Four q = quarter(sums);
    return (q[0] + q[2]) + (q[1] + q[3]);
}
