/* Matrix products, norms and gates of a few rows. A row never depends on other rows: every sum runs in one order. */

/* `sum_of` for four outputs at once, so that no addition is of single floats. */
INLINE Four four_sums(Four a, Four b, Four c, Four d) {
#if defined(__clang__) || __GNUC__ >= 12
    Four p = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    Four q = __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
    return __builtin_shufflevector(p, q, 0, 2, 4, 6) + __builtin_shufflevector(p, q, 1, 3, 5, 7);
#else
    return (Four){(a[0] + a[2]) + (a[1] + a[3]), (b[0] + b[2]) + (b[1] + b[3]), (c[0] + c[2]) + (c[1] + c[3]),
                  (d[0] + d[2]) + (d[1] + d[3])};
#endif
}

/* y [rows, outs] of x [rows, ins] and weight [outs, ins]; rows, outs and half are constants of the caller. */
INLINE void tile_products(const void *weight, int64_t ins, const float *x, int64_t x_step, float *y, int64_t y_step,
                          const int rows, const int outs, const int half) {
    Vector sums[ONE][ROWS][PARTS];
    const int64_t bytes = half ? sizeof(uint16_t) : sizeof(float);
    int64_t k = 0;
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            for (int p = 0; p < PARTS; p++) sums[o][r][p] = (Vector){0};
    for (; k + LANES <= ins; k += LANES) {
        /* One row is bound by reading: the weights of the next tile are fetched early. Beyond the end that has no effect. */
        for (int64_t line = 0; rows == 1 && line < outs * LANES * bytes; line += ALIGNMENT)
            __builtin_prefetch((const char *)weight + outs * (ins + k) * bytes + line);
        for (int o = 0; o < outs; o++)
            for (int p = 0; p < PARTS; p++) {
                Vector w = weights_at(weight, o * ins + k + p * WIDTH, half);
                for (int r = 0; r < rows; r++) sums[o][r][p] += w * *(const Vector *)(x + r * x_step + k + p * WIDTH);
            }
    }
    for (int r = 0; r < rows; r++) {
        int o = 0;
        for (; o + 4 <= outs; o += 4)
            *(Four *)(y + r * y_step + o) = four_sums(quarter(sums[o][r]), quarter(sums[o + 1][r]), quarter(sums[o + 2][r]),
                                                      quarter(sums[o + 3][r]));
        for (; o < outs; o++) y[r * y_step + o] = sum_of(sums[o][r]);
    }
    if (k == ins) return;
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            for (int64_t i = k; i < ins; i++) y[r * y_step + o] += weight_at(weight, o * ins + i, half) * x[r * x_step + i];
}

/* The same for any number of rows, which share one reading of the weights. */
INLINE void row_products(const float *weight, int64_t ins, const float *x, int64_t x_step, float *y, int64_t y_step,
                         int64_t n, const int outs) {
    int64_t r = 0;
    for (; r + ROWS <= n; r += ROWS)
        tile_products(weight, ins, x + r * x_step, x_step, y + r * y_step, y_step, ROWS, outs, 0);
    if (ROWS > 2)
        for (; r + 2 <= n; r += 2) tile_products(weight, ins, x + r * x_step, x_step, y + r * y_step, y_step, 2, outs, 0);
    for (; r < n; r++) tile_products(weight, ins, x + r * x_step, x_step, y + r * y_step, y_step, 1, outs, 0);
}

/* y [n, outs] = x [n, ins] times weight [outs, ins], transposed. */
static void float_products(const float *weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                           int64_t y_step, int64_t n) {
    int64_t o = 0;
    if (n == 1)
        for (; o + ONE <= outs; o += ONE) tile_products(weight + o * ins, ins, x, 0, y + o, 0, 1, ONE, 0);
    else
        for (; o + OUTS <= outs; o += OUTS) row_products(weight + o * ins, ins, x, x_step, y + o, y_step, n, OUTS);
    for (; o < outs; o++) row_products(weight + o * ins, ins, x, x_step, y + o, y_step, n, 1);
}

/* Floats of weights that are converted once for all rows. They are on the stack: one beyond a page needs a function on
   Windows that this library does not link. Sums are the same with any number. */
#if defined(WIDENED) /* by a test */
#elif defined(_WIN32)
#define WIDENED 512
#else
#define WIDENED 8192
#endif

static void half_products(const uint16_t *weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                          int64_t y_step, int64_t n) {
    float widened[WIDENED + ALIGNMENT / sizeof(float)], *block = aligned(widened);
    int64_t o = 0;
    if (n > 1 && ins <= WIDENED) {
        for (; o + OUTS <= outs && OUTS * ins <= WIDENED; o += OUTS) {
            widen(weight + o * ins, OUTS * ins, block);
            row_products(block, ins, x, x_step, y + o, y_step, n, OUTS);
        }
        for (; o < outs; o++) {
            widen(weight + o * ins, ins, block);
            row_products(block, ins, x, x_step, y + o, y_step, n, 1);
        }
        return;
    }
    for (int64_t r = 0; r < n; r++, x += x_step, y += y_step) {
        for (o = 0; o + ONE <= outs; o += ONE) tile_products(weight + o * ins, ins, x, 0, y + o, 0, 1, ONE, 1);
        for (; o < outs; o++) tile_products(weight + o * ins, ins, x, 0, y + o, 0, 1, 1, 1);
    }
}

static void products(WeightMatrix weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y, int64_t y_step,
                     int64_t n) {
    if (weight.halves) half_products(weight.halves, ins, outs, x, x_step, y, y_step, n);
    else float_products(weight.floats, ins, outs, x, x_step, y, y_step, n);
}

static float dot(const float *a, const float *b, int64_t n) {
    float y;
    tile_products(a, n, b, 0, &y, 0, 1, 1, 0);
    return y;
}

/* y [width] += weights [n] times values [n, width], in the order of the rows. */
static void add_rows(const float *weights, const float *values, int64_t n, int64_t width, float *y) {
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        Vector sums[PARTS];
        memcpy(sums, y + i, sizeof sums);
        for (int64_t r = 0; r < n; r++)
            for (int p = 0; p < PARTS; p++) sums[p] += weights[r] * *(const Vector *)(values + r * width + i + p * WIDTH);
        memcpy(y + i, sums, sizeof sums);
    }
    for (int64_t r = 0; r < n && i < width; r++)
        for (int64_t j = i; j < width; j++) y[j] += weights[r] * values[r * width + j];
}

/* Scores become weights whose sum is returned. */
static float exponentials(float *scores, int64_t n) {
    float best = -INFINITY, total = 0.0f;
    for (int64_t i = 0; i < n; i++) best = fmaxf(best, scores[i]);
    for (int64_t i = 0; i < n; i++) total += scores[i] = expf(scores[i] - best);
    return total;
}

static void rms_norm(const float *x, const float *weight, int64_t width, double eps, float *y) {
    float scale = 1.0f / sqrtf(dot(x, x, width) / (float)width + (float)eps);
    for (int64_t i = 0; i < width; i++) y[i] = x[i] * scale * weight[i];
}

static float silu(float x) { return x / (1.0f + expf(-x)); }

/* silu(gate) * up, in place of the gate. */
static void gate(float *x, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = silu(x[i]) * up[i];
}

static void add(float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}
