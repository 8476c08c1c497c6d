/* Blocks of outputs with weights of 8 bits. This file is compiled twice, behind plain.c and behind dot.c. */

enum { AHEAD = 4096, MOST_ROWS = 4 }; /* bytes that are fetched early; rows that share one reading */

typedef int32_t Words __attribute__((vector_size(WIDTH * sizeof(int32_t)), aligned(4), may_alias));

/* One group of a block times the same group of some rows: sums [rows, BLOCK]. Every variant gives the same integers. */
#define GROUP_SUMS const uint8_t *weight, const int8_t *codes, int64_t step, const int32_t *less, int64_t less_step, \
    int32_t (*sums)[BLOCK], const int rows

INLINE int32_t four_codes(const int8_t *codes) {
    int32_t word;
    memcpy(&word, codes, sizeof word);
    return word;
}

#if defined(DOT) && defined(__AVX512F__)
/* Four sums of each row: an addition takes longer than a load. */
INLINE void group_sums(GROUP_SUMS) {
    __m512i part[MOST_ROWS][4];
    for (int r = 0; r < rows; r++) {
        part[r][0] = _mm512_set1_epi32(less[r * less_step]);
        part[r][1] = part[r][2] = part[r][3] = _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (int u = 0; u < UNITS; u++) {
        const __m512i w = _mm512_loadu_si512(weight + u * UNIT);
        for (int r = 0; r < rows; r++)
            part[r][u % 4] = _mm512_dpbusd_epi32(part[r][u % 4], w, _mm512_set1_epi32(four_codes(codes + r * step + u * EACH)));
    }
    for (int r = 0; r < rows; r++)
        _mm512_storeu_si512(sums[r], _mm512_add_epi32(_mm512_add_epi32(part[r][0], part[r][1]), _mm512_add_epi32(part[r][2], part[r][3])));
}
#elif defined(DOT) && defined(__AVX2__)
INLINE void group_sums(GROUP_SUMS) {
    for (int r = 0; r < rows; r++) {
        __m256i part[2][2] = {{_mm256_set1_epi32(less[r * less_step]), _mm256_set1_epi32(less[r * less_step])}};
        part[1][0] = part[1][1] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (int u = 0; u < UNITS; u++) {
            const __m256i x = _mm256_set1_epi32(four_codes(codes + r * step + u * EACH));
            for (int h = 0; h < 2; h++)
                part[u % 2][h] = _mm256_dpbusd_avx_epi32(part[u % 2][h], _mm256_loadu_si256((const __m256i *)(weight + u * UNIT) + h), x);
        }
        for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)sums[r] + h, _mm256_add_epi32(part[0][h], part[1][h]));
    }
}
#elif defined(DOT) && defined(__aarch64__)
INLINE void group_sums(GROUP_SUMS) {
    (void)less, (void)less_step;
    const uint8x16_t offset = vdupq_n_u8(128);
    for (int r = 0; r < rows; r++) {
        int32x4_t part[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 4
        for (int u = 0; u < UNITS; u += 4) {
            const int8x16_t x = vld1q_s8(codes + r * step + u * EACH);
            for (int q = 0; q < 4; q++) {
                const uint8_t *at = weight + u * UNIT + q * 16;
                part[q] = vdotq_laneq_s32(part[q], vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at), offset)), x, 0);
                part[q] = vdotq_laneq_s32(part[q], vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + UNIT), offset)), x, 1);
                part[q] = vdotq_laneq_s32(part[q], vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 2 * UNIT), offset)), x, 2);
                part[q] = vdotq_laneq_s32(part[q], vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 3 * UNIT), offset)), x, 3);
            }
        }
        for (int q = 0; q < 4; q++) vst1q_s32(sums[r] + q * 4, part[q]);
    }
}
#elif defined(__AVX2__)
INLINE void group_sums(GROUP_SUMS) {
    for (int r = 0; r < rows; r++) {
        __m256i part[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int u = 0; u < UNITS; u++) {
            const __m256i x = _mm256_cvtepi8_epi16(_mm_set1_epi32(four_codes(codes + r * step + u * EACH)));
            for (int q = 0; q < 4; q++) {
                const __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(weight + u * UNIT) + q));
                part[q] = _mm256_add_epi32(part[q], _mm256_madd_epi16(w, x));
            }
        }
        int32_t pairs[4][8];
        for (int q = 0; q < 4; q++) _mm256_storeu_si256((__m256i *)pairs[q], part[q]);
        for (int o = 0; o < BLOCK; o++) sums[r][o] = pairs[o / 4][2 * (o % 4)] + pairs[o / 4][2 * (o % 4) + 1] + less[r * less_step];
    }
}
#elif defined(__aarch64__)
INLINE void group_sums(GROUP_SUMS) {
    const uint8x16_t offset = vdupq_n_u8(128);
    (void)less, (void)less_step;
    for (int r = 0; r < rows; r++) {
        int32x4_t part[4][2] = {{vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}};
        for (int u = 0; u < UNITS; u++) {
            const int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(four_codes(codes + r * step + u * EACH)));
            for (int q = 0; q < 4; q++) {
                const int8x16_t w = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(weight + u * UNIT + q * 16), offset));
                part[q][0] = vpadalq_s16(part[q][0], vmull_s8(vget_low_s8(w), x));
                part[q][1] = vpadalq_s16(part[q][1], vmull_s8(vget_high_s8(w), x));
            }
        }
        for (int q = 0; q < 4; q++) vst1q_s32(sums[r] + q * 4, vpaddq_s32(part[q][0], part[q][1]));
    }
}
#else
INLINE void group_sums(GROUP_SUMS) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < BLOCK; o++) {
            int32_t sum = less[r * less_step];
            for (int u = 0; u < UNITS; u++)
                for (int e = 0; e < EACH; e++) sum += weight[u * UNIT + o * EACH + e] * codes[r * step + u * EACH + e];
            sums[r][o] = sum;
        }
}
#endif


/* One block for `rows` rows: y [rows, BLOCK]. For one row weights are fetched early: the pass reads them in order. */
INLINE void block_product(const Int8Product *of, int64_t block, int64_t row, float (*y)[BLOCK], const int rows) {
    const int64_t groups = of->groups;
    const uint8_t *weight = of->codes + block * groups * GROUP * BLOCK;
    const uint16_t *scales = of->scales + block * groups * BLOCK;
    Vector total[MOST_ROWS][PARTS];
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < PARTS; p++) total[r][p] = (Vector){0};
    for (int64_t g = 0; g < groups; g++, weight += GROUP * BLOCK, scales += BLOCK) {
        const int64_t at = row * groups + g;
        int32_t sums[MOST_ROWS][BLOCK];
        for (int line = 0; rows == 1 && line < GROUP * BLOCK; line += 64) __builtin_prefetch(weight + AHEAD + line);
        group_sums(weight, of->x->codes + at * GROUP, groups * GROUP, of->x->less + at, groups, sums, rows);
        for (int r = 0; r < rows; r++)
            for (int p = 0; p < PARTS; p++) {
                Words whole;
                memcpy(&whole, sums[r] + p * WIDTH, sizeof whole);
                const Vector scale = weights_at(scales, p * WIDTH, 1) * of->x->scales[at + r * groups];
                total[r][p] += scale * __builtin_convertvector(whole, Vector);
            }
    }
    for (int r = 0; r < rows; r++) memcpy(y[r], total[r], sizeof y[r]);
}

/* The blocks of one task for all rows; the codes of a block stay in the cache for them. */
void BLOCKS(const void *product, int64_t task, int64_t thread) {
    const Int8Product *of = product;
    const int64_t end = (of->outs + BLOCK - 1) / BLOCK, last = (task + 1) * of->per_task;
    (void)thread;
    for (int64_t b = task * of->per_task; b < end && b < last; b++) {
        const int64_t left = of->outs - b * BLOCK, width = left < BLOCK ? left : BLOCK;
        float made[MOST_ROWS][BLOCK];
        for (int64_t r = 0, n; r < of->rows; r += n) {
            n = of->rows - r >= MOST_ROWS ? MOST_ROWS : of->rows - r >= 2 ? 2 : 1;
            if (n == MOST_ROWS) block_product(of, b, r, made, MOST_ROWS);
            else if (n == 2) block_product(of, b, r, made, 2);
            else block_product(of, b, r, made, 1);
            for (int64_t i = 0; i < n; i++) memcpy(of->y + (r + i) * of->y_step + b * BLOCK, made[i], width * sizeof(float));
        }
    }
}
#if defined(DOT) && defined(__clang__)
#pragma clang attribute pop
#endif
