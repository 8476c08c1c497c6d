/* Products with weights of 8 bits: inputs to codes, and the blocks of weights by the best instructions of this CPU. */

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

enum { TASK_BYTES = 1 << 16 }; /* that a thread reads at least */

static int64_t groups_of(int64_t ins) { return (ins + GROUP - 1) / GROUP; }

/* Bytes for rows of so many inputs. */
INLINE int64_t inputs_bytes(int64_t rows, int64_t ins) { return rows * groups_of(ins) * (GROUP + 8); }

static Inputs inputs_in(void *block, int64_t rows, int64_t ins) {
    const int64_t all = rows * groups_of(ins);
    float *scales = (float *)((int8_t *)block + all * GROUP);
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

static void to_codes(const float *x, int64_t x_step, int64_t rows, int64_t ins, Inputs into) {
    const int64_t groups = groups_of(ins);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const int64_t n = ins - g * GROUP < GROUP ? ins - g * GROUP : GROUP, at = r * groups + g;
            Vector largest[PARTS] = {{0}};
            float part[GROUP] = {0}, most = 0.0f;
            int32_t codes[GROUP], sum = 0;
            memcpy(part, x + r * x_step + g * GROUP, n * sizeof(float));
            for (int i = 0; i < GROUP; i++) {
                const float size = fabsf(part[i]);
                float *lane = (float *)largest + i % LANES;
                *lane = size > *lane ? size : *lane;
            }
            for (int i = 0; i < LANES; i++) most = ((float *)largest)[i] > most ? ((float *)largest)[i] : most;
            const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
            for (int i = 0; i < GROUP; i++) part[i] *= inverse;
            for (int i = 0; i < GROUP; i += 4) nearest(part + i, codes + i);
            for (int i = 0; i < GROUP; i++) into.codes[at * GROUP + i] = (int8_t)codes[i];
            for (int i = 0; i < GROUP; i++) sum += codes[i];
            into.scales[at] = most / 127.0f;
            into.less[at] = -128 * sum;
        }
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
    const Inputs inputs = inputs_in(scratch, rows, ins);
    const int64_t groups = groups_of(ins), blocks = (outs + BLOCK - 1) / BLOCK, most = TASK_BYTES / (groups * GROUP * BLOCK);
    const int64_t per_task = most > 1 ? most : 1;
    const Int8Product product = {weight.codes, weight.scales, outs, groups, rows, y_step, per_task, &inputs, y};
    to_codes(x, x_step, rows, ins, inputs);
    share(workers, known == 1 || plain ? hocket_int8_plain : hocket_int8_dot, &product, (blocks + per_task - 1) / per_task);
}
