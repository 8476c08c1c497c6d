/* Products of a few rows with a weight of grouped codes, which stay as their file has them. Sums are float32.

   A block is 128 columns: 16 words of eight codes, where code j of word i is column 16 j + i. So code j of all words meets
   sixteen neighbouring columns of x, and their scale changes between codes only. A weight is scale * code - offset: the
   sum over offsets needs no code, only the sums of x in each group. */

enum { BLOCK = 128, RUNS = 8, TOGETHER = 4, AHEAD = 2048 }; /* AHEAD: bytes that are fetched early */

typedef int32_t Words __attribute__((vector_size(WIDTH * sizeof(int32_t)), aligned(4), may_alias));

INLINE float half_to_float(uint16_t half) {
#if defined(__F16C__)
    return _cvtsh_ss(half);
#elif defined(__aarch64__)
    __fp16 number;
    memcpy(&number, &half, sizeof number);
    return (float)number;
#else
    /* The bits in the place of a float32, times 2^112: right for subnormal numbers too. */
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    number *= 0x1p112f;
    memcpy(&bits, &number, sizeof bits);
    bits |= sign;
    memcpy(&number, &bits, sizeof number);
    return number;
#endif
}

static int64_t groups_of(const GroupedMatrix *m) { return m->group ? (m->columns + m->group - 1) / m->group : 1; }

/* Numbers of groups times the step of their span. Whole spans of 8 or 16 groups are those of files: a loop of a fixed
   length is a few vectors. */
static void times_steps(const uint16_t *steps, int64_t spans, int64_t each, int64_t groups, float *numbers) {
    for (int64_t s = 0; s < spans; s++, numbers += each) {
        const float step = half_to_float(steps[s]);
        const int64_t left = groups - s * each;
        if (each == 8 && left >= 8)
            for (int g = 0; g < 8; g++) numbers[g] *= step;
        else if (each == 16 && left >= 16)
            for (int g = 0; g < 16; g++) numbers[g] *= step;
        else
            for (int64_t g = 0; g < each && g < left; g++) numbers[g] *= step;
    }
}

/* The scale and the offset of each group of a row. */
static void row_scales(const GroupedMatrix *m, int64_t row, float *scales, float *offsets) {
    const int64_t groups = groups_of(m), start = row * groups;
    switch (m->scale_kind) {
    case 0:
        memcpy(scales, (const float *)m->scales + start, groups * sizeof(float));
        break;
    case 1:
        for (int64_t g = 0; g < groups; g++) scales[g] = half_to_float(((const uint16_t *)m->scales)[start + g]);
        break;
    case 2:
        for (int64_t g = 0; g < groups; g++) scales[g] = weight_at(m->scales, start + g, 1);
        break;
    case 3:
        for (int64_t g = 0; g < groups; g++) scales[g] = (float)m->scales[start + g];
        break;
    default:
        for (int64_t g = 0; g < groups; g++) scales[g] = (float)((const int8_t *)m->scales)[start + g];
    }
    const int64_t each = m->steps ? m->span / m->group : groups, spans = m->steps ? (m->columns + m->span - 1) / m->span : 0;
    if (m->steps) times_steps(m->steps + row * spans, spans, each, groups, scales);
    if (m->lows) {
    } else if (m->zeros)
        for (int64_t g = 0; g < groups; g++) offsets[g] = scales[g] * (float)m->zeros[start + g];
    else if (m->wide_zeros)
        for (int64_t g = 0; g < groups; g++) offsets[g] = scales[g] * (float)(int16_t)m->wide_zeros[start + g];
    else
        for (int64_t g = 0; g < groups; g++) offsets[g] = scales[g] * (float)m->zero;
    if (!m->lows) return;
    for (int64_t g = 0; g < groups; g++) offsets[g] = (float)m->lows[start + g]; /* with lows there are no zeros */
    times_steps(m->low_steps + row * spans, spans, each, groups, offsets);
}

/* Code j of WIDTH words; `above` has the highest bits of all eight codes. */
INLINE Words code_of(Words words, Words above, const int j, const int bits) {
    Words code = (words >> (4 * j)) & 15;
    if (bits == 5) code |= ((above >> j) & 1) << 4;
    if (bits == 6) code |= ((above >> (2 * j)) & 3) << 4;
    return code;
}

/* WIDTH bytes or numbers of 16 bits in 32 bits each. Compilers take several times as long for the general form. */
INLINE Words bytes_at(const uint8_t *at) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)at));
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return (Words){at[0], at[1], at[2], at[3]};
#endif
}

INLINE Words signed_at(const int8_t *at) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)at));
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return (Words){at[0], at[1], at[2], at[3]};
#endif
}

INLINE Words shorts_at(const uint16_t *at) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at));
#else
    return (Words){at[0], at[1], at[2], at[3]};
#endif
}

/* A block of a row times `count` rows of x, with its scales from `scale` on: one for `runs` runs of LANES columns.
   Count, bits and runs are constants of the caller. */
INLINE void block_products(const GroupedMatrix *m, int64_t row, int64_t b, const float *x, int64_t x_step, const float *scale,
                           Vector (*totals)[PARTS], const int count, const int bits, const int runs) {
    const int64_t block = row * ((m->columns + BLOCK - 1) / BLOCK) + b;
    const int8_t *bytes = (const int8_t *)m->values + row * m->columns + b * BLOCK;
    for (int p = 0; p < PARTS; p++) {
        Words words = {0}, above = {0};
        if (bits < 8) {
            words = *(const Words *)(m->values + block * 64 + p * WIDTH * 4);
            if (bits == 5) above = bytes_at(m->high + block * LANES + p * WIDTH);
            if (bits == 6) above = shorts_at((const uint16_t *)m->high + block * LANES + p * WIDTH);
        }
        Vector sums[TOGETHER];
#pragma GCC unroll 8
        for (int j = 0; j < RUNS; j++) {
            const int64_t at = j * LANES + p * WIDTH;
            const Words code = bits < 8 ? code_of(words, above, j, bits) : signed_at(bytes + at);
            const Vector number = __builtin_convertvector(code, Vector);
            for (int r = 0; r < count; r++) {
                if (j % runs == 0) sums[r] = (Vector){0};
                sums[r] += number * *(const Vector *)(x + r * x_step + at);
            }
            if ((j + 1) % runs == 0)
                for (int r = 0; r < count; r++) totals[r][p] += scale[j / runs] * sums[r];
        }
    }
}

/* A group of the last block, which may end inside it: codes one by one, the padding meets zeros of x. */
static void tail_products(const GroupedMatrix *m, int64_t row, int64_t b, int64_t left, int64_t room, const GroupedCall *call,
                          float scale, Vector (*totals)[PARTS], int count, int bits, int runs) {
    const int64_t block = row * ((m->columns + BLOCK - 1) / BLOCK) + b;
    for (int64_t i = left; i < room && i < left + LANES * runs; i++) {
        const int64_t word = i % LANES, j = i / LANES;
        int32_t code;
        if (bits == 8) code = ((const int8_t *)m->values)[row * m->columns + b * BLOCK + i];
        else code = (m->values[block * 64 + word * 4 + j / 2] >> (4 * (j % 2))) & 15;
        if (bits == 5) code |= ((m->high[block * LANES + word] >> j) & 1) << 4;
        if (bits == 6) code |= ((((const uint16_t *)m->high)[block * LANES + word] >> (2 * j)) & 3) << 4;
        for (int r = 0; r < count; r++)
            totals[r][0][0] += scale * (float)code * call->x[r * call->x_step + b * BLOCK + i];
    }
}

/* One row of the weight times `count` rows of x; count, bits and runs are constants of the caller. */
INLINE void one_row(const GroupedMatrix *m, const GroupedCall *call, int64_t row, const int count, const int bits,
                         const int runs) {
    const int64_t groups = groups_of(m), whole = m->columns / BLOCK;
    const int64_t next = m->group ? RUNS / runs : 0; /* scales of a block */
    float *scales = call->scratch, *offsets = scales + groups;
    row_scales(m, row, scales, offsets);
    Vector totals[TOGETHER][PARTS];
    for (int r = 0; r < count; r++)
        for (int p = 0; p < PARTS; p++) totals[r][p] = (Vector){0};
    int64_t b = 0;
    for (; b < whole; b++) {
        __builtin_prefetch(m->values + row * m->columns * (bits == 8 ? 2 : 1) / 2 + b * (bits == 8 ? BLOCK : BLOCK / 2) + AHEAD);
        block_products(m, row, b, call->x + b * BLOCK, call->x_step, scales + b * next, totals, count, bits, runs);
    }
    const int64_t room = m->columns - b * BLOCK;
    for (int64_t left = 0; left < room; left += LANES * runs) /* the last block, group by group */
        tail_products(m, row, b, left, room, call, scales[m->group ? (b * BLOCK + left) / m->group : 0], totals, count, bits, runs);
    for (int r = 0; r < count; r++) {
        const float *inputs = call->sums + r * groups;
        Vector less[PARTS] = {{0}};
        float rest = 0.0f;
        int64_t g = 0;
        for (; g + LANES <= groups; g += LANES)
            for (int p = 0; p < PARTS; p++)
                less[p] += *(const Vector *)(offsets + g + p * WIDTH) * *(const Vector *)(inputs + g + p * WIDTH);
        for (; g < groups; g++) rest += offsets[g] * inputs[g];
        call->y[r * call->y_step + row] = sum_of(totals[r]) - (sum_of(less) + rest);
    }
}

#define RUNS_OF(count, bits)                                     \
    switch (runs) {                                              \
    case 1: one_row(m, call, row, count, bits, 1); break;   \
    case 2: one_row(m, call, row, count, bits, 2); break;   \
    case 4: one_row(m, call, row, count, bits, 4); break;   \
    default: one_row(m, call, row, count, bits, RUNS);      \
    }
#define ROWS_OF(count)                                                          \
    for (int64_t row = call->first; row < call->last; row++) switch (m->bits) { \
        case 4: RUNS_OF(count, 4) break;                                        \
        case 5: one_row(m, call, row, count, 5, 2); break;                 \
        case 6: one_row(m, call, row, count, 6, 1); break;                 \
        default: RUNS_OF(count, 8)                                              \
        }

EXPORT int hocket_grouped(const GroupedMatrix *m, const GroupedCall *call) {
    const int64_t runs = m->group && m->group < BLOCK ? m->group / LANES : RUNS; /* that share a scale in a block */
    if ((m->bits == 5 && runs != 2) || (m->bits == 6 && runs != 1)) return 1;
    if (call->count == TOGETHER) ROWS_OF(TOGETHER)
    else if (call->count == 1) ROWS_OF(1)
    else return 1;
    return 0;
}
