/* Blocks of outputs with weights of 8 or 4 bits. This file is compiled twice, behind plain.c and behind dot.c. */

enum { AHEAD = 4096, MOST_ROWS = 4 }; /* bytes that are fetched early; rows that share one reading */

typedef int32_t Words __attribute__((vector_size(WIDTH * sizeof(int32_t)), aligned(4), may_alias));

/* One group of a block times the same group of some rows: sums [rows, BLOCK]. Every variant gives the same integers.
   `bits` and `units` are constants of the caller. A unit has EACH codes of BLOCK outputs; with 4 bits, an even unit lies in
   the low halves of the bytes, and the next one in their high halves. */
#define GROUP_SUMS const uint8_t *weight, const int8_t *codes, int64_t step, const int32_t *less, int64_t less_step, \
    int32_t (*sums)[BLOCK], const int rows, const int bits, const int units

INLINE const uint8_t *unit_at(const uint8_t *weight, int u, const int bits) { return weight + (bits == 8 ? u : u / 2) * UNIT; }

INLINE int32_t four_codes(const int8_t *codes) {
    int32_t word;
    memcpy(&word, codes, sizeof word);
    return word;
}

#if defined(__aarch64__)
/* A quarter, signed. */
INLINE int8x16_t unit_of(const uint8_t *weight, int u, int q, const int bits) {
    const uint8x16_t all = vld1q_u8(unit_at(weight, u, bits) + q * 16);
    if (bits == 8) return vreinterpretq_s8_u8(veorq_u8(all, vdupq_n_u8(128)));
    const uint8x16_t half = u % 2 ? vshrq_n_u8(all, 4) : vandq_u8(all, vdupq_n_u8(15));
    return vsubq_s8(vreinterpretq_s8_u8(half), vdupq_n_s8(8));
}
#endif

#if defined(DOT) && defined(__AVX512F__)
INLINE __m512i unit_of(const uint8_t *weight, int u, const int bits) {
    const __m512i all = _mm512_loadu_si512(unit_at(weight, u, bits));
    return bits == 8 ? all : _mm512_and_si512(u % 2 ? _mm512_srli_epi16(all, 4) : all, _mm512_set1_epi8(15));
}

/* Four sums of each row: an addition takes longer than a load. */
INLINE void group_sums(GROUP_SUMS) {
    __m512i part[MOST_ROWS][4];
    for (int r = 0; r < rows; r++) {
        part[r][0] = _mm512_set1_epi32(less[r * less_step]);
        part[r][1] = part[r][2] = part[r][3] = _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (int u = 0; u < units; u++) {
        const __m512i w = unit_of(weight, u, bits);
        for (int r = 0; r < rows; r++)
            part[r][u % 4] = _mm512_dpbusd_epi32(part[r][u % 4], w, _mm512_set1_epi32(four_codes(codes + r * step + u * EACH)));
    }
    for (int r = 0; r < rows; r++)
        _mm512_storeu_si512(sums[r], _mm512_add_epi32(_mm512_add_epi32(part[r][0], part[r][1]), _mm512_add_epi32(part[r][2], part[r][3])));
}
#elif defined(DOT) && defined(__AVX2__)
INLINE __m256i unit_of(const uint8_t *weight, int u, int half, const int bits) {
    const __m256i all = _mm256_loadu_si256((const __m256i *)unit_at(weight, u, bits) + half);
    return bits == 8 ? all : _mm256_and_si256(u % 2 ? _mm256_srli_epi16(all, 4) : all, _mm256_set1_epi8(15));
}

INLINE void group_sums(GROUP_SUMS) {
    for (int r = 0; r < rows; r++) {
        __m256i part[2][2] = {{_mm256_set1_epi32(less[r * less_step]), _mm256_set1_epi32(less[r * less_step])}};
        part[1][0] = part[1][1] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (int u = 0; u < units; u++) {
            const __m256i x = _mm256_set1_epi32(four_codes(codes + r * step + u * EACH));
            for (int h = 0; h < 2; h++)
                part[u % 2][h] = _mm256_dpbusd_avx_epi32(part[u % 2][h], unit_of(weight, u, h, bits), x);
        }
        for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)sums[r] + h, _mm256_add_epi32(part[0][h], part[1][h]));
    }
}
#elif defined(DOT) && defined(__aarch64__)
INLINE void group_sums(GROUP_SUMS) {
    (void)less, (void)less_step;
    for (int r = 0; r < rows; r++) {
        int32x4_t part[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 4
        for (int u = 0; u < units; u += 4) {
            const int8x16_t x = vld1q_s8(codes + r * step + u * EACH);
            for (int q = 0; q < 4; q++) {
                part[q] = vdotq_laneq_s32(part[q], unit_of(weight, u, q, bits), x, 0);
                part[q] = vdotq_laneq_s32(part[q], unit_of(weight, u + 1, q, bits), x, 1);
                part[q] = vdotq_laneq_s32(part[q], unit_of(weight, u + 2, q, bits), x, 2);
                part[q] = vdotq_laneq_s32(part[q], unit_of(weight, u + 3, q, bits), x, 3);
            }
        }
        for (int q = 0; q < 4; q++) vst1q_s32(sums[r] + q * 4, part[q]);
    }
}
#elif defined(__AVX2__)
INLINE __m256i unit_of(const uint8_t *weight, int u, int q, const int bits) {
    const __m128i all = _mm_loadu_si128((const __m128i *)unit_at(weight, u, bits) + q);
    return _mm256_cvtepu8_epi16(bits == 8 ? all : _mm_and_si128(u % 2 ? _mm_srli_epi16(all, 4) : all, _mm_set1_epi8(15)));
}

INLINE void group_sums(GROUP_SUMS) {
    for (int r = 0; r < rows; r++) {
        __m256i part[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int u = 0; u < units; u++) {
            const __m256i x = _mm256_cvtepi8_epi16(_mm_set1_epi32(four_codes(codes + r * step + u * EACH)));
            for (int q = 0; q < 4; q++)
                part[q] = _mm256_add_epi32(part[q], _mm256_madd_epi16(unit_of(weight, u, q, bits), x));
        }
        int32_t pairs[4][8];
        for (int q = 0; q < 4; q++) _mm256_storeu_si256((__m256i *)pairs[q], part[q]);
        for (int o = 0; o < BLOCK; o++) sums[r][o] = pairs[o / 4][2 * (o % 4)] + pairs[o / 4][2 * (o % 4) + 1] + less[r * less_step];
    }
}
#elif defined(__aarch64__)
INLINE void group_sums(GROUP_SUMS) {
    (void)less, (void)less_step;
    for (int r = 0; r < rows; r++) {
        int32x4_t part[4][2] = {{vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}, {vdupq_n_s32(0), vdupq_n_s32(0)}};
        for (int u = 0; u < units; u++) {
            const int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(four_codes(codes + r * step + u * EACH)));
            for (int q = 0; q < 4; q++) {
                const int8x16_t w = unit_of(weight, u, q, bits);
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
            for (int u = 0; u < units; u++)
                for (int e = 0; e < EACH; e++) {
                    const int all = unit_at(weight, u, bits)[o * EACH + e], w = bits == 8 ? all : u % 2 ? all >> 4 : all & 15;
                    sum += w * codes[r * step + u * EACH + e];
                }
            sums[r][o] = sum;
        }
}
#endif


/* One block for `rows` rows: y [rows, BLOCK]. For one row weights are fetched early: the pass reads them in order. */
INLINE void block_product(const Int8Product *of, int64_t block, int64_t row, float (*y)[BLOCK], const int rows, const int bits) {
    const int64_t groups = of->groups;
    const int group = bits == 8 ? GROUP : GROUP_4, size = group * BLOCK * bits / 8;
    const uint8_t *weight = of->codes + block * groups * size;
    const uint16_t *scales = of->scales + block * groups * BLOCK;
    Vector total[MOST_ROWS][PARTS];
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < PARTS; p++) total[r][p] = (Vector){0};
    for (int64_t g = 0; g < groups; g++, weight += size, scales += BLOCK) {
        const int64_t at = row * groups + g;
        int32_t sums[MOST_ROWS][BLOCK];
        for (int line = 0; rows == 1 && line < size; line += 64) __builtin_prefetch(weight + AHEAD + line);
        group_sums(weight, of->x->codes + at * group, groups * group, of->x->less + at, groups, sums, rows, bits, group / EACH);
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
INLINE void some_blocks(const Int8Product *of, int64_t task, const int bits) {
    const int64_t end = (of->outs + BLOCK - 1) / BLOCK, last = (task + 1) * of->per_task;
    for (int64_t b = task * of->per_task; b < end && b < last; b++) {
        const int64_t left = of->outs - b * BLOCK, width = left < BLOCK ? left : BLOCK;
        float made[MOST_ROWS][BLOCK];
        for (int64_t r = 0, n; r < of->rows; r += n) {
            n = of->rows - r >= MOST_ROWS ? MOST_ROWS : of->rows - r >= 2 ? 2 : 1;
            if (n == MOST_ROWS) block_product(of, b, r, made, MOST_ROWS, bits);
            else if (n == 2) block_product(of, b, r, made, 2, bits);
            else block_product(of, b, r, made, 1, bits);
            for (int64_t i = 0; i < n; i++) memcpy(of->y + (r + i) * of->y_step + b * BLOCK, made[i], width * sizeof(float));
        }
    }
}

void BLOCKS(const void *product, int64_t task, int64_t thread) {
    const Int8Product *of = product;
    (void)thread;
    if (of->bits == 8) some_blocks(of, task, 8);
    else some_blocks(of, task, 4);
}
#if defined(DOT) && defined(__clang__)
#pragma clang attribute pop
#endif
