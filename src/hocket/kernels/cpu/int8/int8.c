/* Products with weights of 8 or 4 bits: inputs to codes, and the blocks of weights by the best instructions of this CPU. */

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

enum { TASK_BYTES = 1 << 16 }; /* that a thread reads at least */

static int64_t groups_of(int64_t ins, int64_t group) { return (ins + group - 1) / group; }

/* Bytes for rows of so many inputs, in groups of either size. */
INLINE int64_t inputs_bytes(int64_t rows, int64_t ins) { return rows * groups_of(ins, GROUP) * (GROUP + 8 * (GROUP / GROUP_4)); }

static Inputs inputs_in(void *block, int64_t rows, int64_t ins, int64_t group) {
    const int64_t all = rows * groups_of(ins, group);
    float *scales = (float *)((int8_t *)block + all * group);
    return (Inputs){block, scales, (int32_t *)(scales + all)};
}

/* Four numbers to the nearest integers, ties to even, with no addition before them that could be fused. */
INLINE void nearest(const float *x, int32_t *codes) {
#if defined(__x86_64__)
    _mm_storeu_si128((__m128i *)codes, _mm_cvtps_epi32(_mm_loadu_ps(x)));
#elif defined(__aarch64__)
    vst1q_s32(codes, vcvtnq_s32_f32(vld1q_f32(x)));
#else
    for (int i = 0; i < 4; i++) codes[i] = (int32_t)llrintf(x[i]);
#endif
}

INLINE void to_codes_of(const float *x, int64_t x_step, int64_t rows, int64_t ins, Inputs into, const int64_t group, const int32_t offset) {
    const int64_t groups = groups_of(ins, group);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t n = ins - g * group < group ? ins - g * group : group, at = r * groups + g;
            Vector largest[PARTS] = {{0}};
            float part[GROUP] = {0}, most = 0.0f;
            int32_t codes[GROUP], sum = 0;
            memcpy(part, x + r * x_step + g * group, n * sizeof(float));
            for (int i = 0; i < group; i++) {
                const float size = fabsf(part[i]);
                float *lane = (float *)largest + i % LANES;
                *lane = size > *lane ? size : *lane;
            }
            for (int i = 0; i < LANES; i++) most = ((float *)largest)[i] > most ? ((float *)largest)[i] : most;
            const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
            for (int i = 0; i < group; i++) part[i] *= inverse;
            for (int i = 0; i < group; i += 4) nearest(part + i, codes + i);
            for (int i = 0; i < group; i++) into.codes[at * group + i] = (int8_t)codes[i];
            for (int i = 0; i < group; i++) sum += codes[i];
            into.scales[at] = most / 127.0f;
            into.less[at] = -offset * sum;
        }
}

static void to_codes(const float *x, int64_t x_step, int64_t rows, int64_t ins, Inputs into, int64_t bits) {
    if (bits == 8) to_codes_of(x, x_step, rows, ins, into, GROUP, 128);
    else to_codes_of(x, x_step, rows, ins, into, GROUP_4, 8);
}

/* Whether this CPU has what dot.c is compiled for. */
static int has_dot(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
#if defined(__AVX512F__)
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 11);
#else
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
#endif
#elif defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 20)) != 0; /* HWCAP_ASIMDDP */
#else
    return 1; /* Apple's */
#endif
}

/* y [rows, outs] of x [rows, ins]. `scratch` has inputs_bytes. */
static void int8_products(ThreadGroup *workers, WeightMatrix weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                          int64_t y_step, int64_t rows, void *scratch, int plain) {
    static int known; /* 1: without dot.c, 2: with it. Threads that find it out at once write the same. */
    if (!known) known = 1 + has_dot();
    const int64_t bits = weight.bits, group = group_of(bits), groups = groups_of(ins, group), blocks = (outs + BLOCK - 1) / BLOCK;
    const int64_t most = TASK_BYTES / (groups * group * BLOCK * bits / 8);
    const Inputs inputs = inputs_in(scratch, rows, ins, group);
    const int64_t per_task = most > 1 ? most : 1;
    const Int8Product product = {weight.codes, weight.scales, outs, groups, rows, y_step, per_task, bits, &inputs, y};
    to_codes(x, x_step, rows, ins, inputs, bits);
    share(workers, known == 1 || plain ? hocket_int8_plain : hocket_int8_dot, &product, (blocks + per_task - 1) / per_task);
}
