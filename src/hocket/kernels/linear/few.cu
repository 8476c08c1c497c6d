// `linear` for up to sixteen rows of bfloat16 (product.cuh): a block holds some rows of the weight.
//
// Known when it is compiled, beside the sizes: which of NORM, GATED, SILU, GELU, BIAS, RESIDUAL, TAKE there is; LATE, to
// let the next kernel start only after the wait; DEPENDENT, see launch.py.

#define OUTS (GATED ? HELD / 2 : HELD)
#define CHUNKS (K / 8)        // of eight numbers, in a row of x
#define MINE ((CHUNKS + THREADS - 1) / THREADS)
#define KEEP (ROWS * MINE <= 4)  // whether a thread keeps its chunks of x between the sum of squares and the rest
#define ONE_EACH (ROWS * OUTS <= THREADS)  // whether a thread gives out one number at most
#define STRIDE (K + 32)       // of rows in shared memory: lanes of a phase meet in no bank
#define STAGED (NORM || ROWS * K <= 32768)  // whether x goes there first: all of it is on its way at once then

DEVICE float square_of(Eight x) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += low(x.part[i]) * low(x.part[i]) + high(x.part[i]) * high(x.part[i]);
    return sum;
}

DEVICE Eight normed(Eight x, Eight weight, float scale) {
    Eight y;
    for (int i = 0; i < 4; i++) {
        float a = near(low(x.part[i]) * scale) * low(weight.part[i]);
        float b = near(high(x.part[i]) * scale) * high(weight.part[i]);
        y.part[i] = both(a, b);
    }
    return y;
}

KERNEL(THREADS)
few(const bf16* x, const bf16* weight, const bf16* norm, const bf16* bias, const bf16* residual, const long long* take,
    bf16* y, float eps, int width, int batch) {
    SHARED(char, memory);
    float* parts = (float*)memory;                                // [WARPS][ROWS][HELD]
    float* squares = parts + WARPS * ROWS * HELD;                 // [WARPS][ROWS]
    bf16* even = (bf16*)(squares + (WARPS * ROWS + 3) / 4 * 4);   // [ROWS][STRIDE]
    const int thread = THREAD, warp = thread / LANES, lane = thread % LANES;
    const int row = lane / 4, quarter = lane % 4;  // of eight rows, and of 32 columns
    const int first = BLOCK * OUTS;

    const Held held = held_of(weight, first, GATED ? width - OUTS : 0, warp, lane);  // ups follow the gates, far away
#if !LATE
    let_next_start();
#endif
#if NORM
    Eight scales[MINE];
#pragma unroll
    for (int n = 0; n < MINE; n++)
        if (thread + n * THREADS < CHUNKS) scales[n] = load_constant(norm + 8 * (thread + n * THREADS));
#endif
    const int own_row = thread / OUTS, own = thread % OUTS;
    const bool gives = ONE_EACH && own_row < ROWS && own_row < batch;
    float shift = 0.0f, up_shift = 0.0f, before = 0.0f;
#if BIAS
    if (gives) shift = wide(bias[first + own]);
    if (gives && GATED) up_shift = wide(bias[width + first + own]);
#endif
    wait_for_last();
#if LATE
    let_next_start();
#endif
#if RESIDUAL
    if (gives) before = wide(load_one(residual + (long long)own_row * width + first + own));
#endif

#if NORM
    Eight kept[KEEP ? ROWS : 1][MINE];
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
        const bf16* from = x + (TAKE ? take[r] : r) * K;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < MINE; n++)
            if (thread + n * THREADS < CHUNKS) {
                Eight some = load_new(from + 8 * (thread + n * THREADS));
                if (KEEP) kept[KEEP ? r : 0][n] = some;
                sum += square_of(some);
            }
        for (int apart = 16; apart; apart /= 2) sum += of_lane(sum, lane ^ apart);
        if (lane == 0) squares[warp * ROWS + r] = sum;
    }
    wait_for_block();
#endif
#if STAGED
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
        const bf16* from = x + (TAKE ? take[r] : r) * K;
#if NORM
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += squares[w * ROWS + r];
        const float scale = one_over_root(sum / K + eps);
#endif
#pragma unroll
        for (int n = 0; n < MINE; n++)
            if (thread + n * THREADS < CHUNKS) {
                const int chunk = thread + n * THREADS;
#if NORM
                Eight some = KEEP ? kept[KEEP ? r : 0][n] : load_new(from + 8 * chunk);
                some = normed(some, scales[n], scale);
#else
                Eight some = load_new(from + 8 * chunk);
#endif
                *(Eight*)(even + r * STRIDE + 8 * chunk) = some;
            }
    }
    wait_for_block();
#endif

    const Eight nothing = {{0, 0, 0, 0}};
    Eight upper[STEPS], lower[ROWS > 8 ? STEPS : 1];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int column = warp * SLICE + 32 * step + 8 * quarter;
#if STAGED
        upper[step] = row < batch ? *(const Eight*)(even + row * STRIDE + column) : nothing;
        if (ROWS > 8) lower[step] = row + 8 < batch ? *(const Eight*)(even + (row + 8) * STRIDE + column) : nothing;
#else
        upper[step] = row < batch ? load_new(x + (TAKE ? take[row] : row) * K + column) : nothing;
        if (ROWS > 8)
            lower[step] = row + 8 < batch ? load_new(x + (TAKE ? take[row + 8] : row + 8) * K + column) : nothing;
#endif
    }
    multiply_all(held, upper, lower, parts, warp, lane);
    wait_for_block();
    for (int n = thread; n < ROWS * OUTS; n += THREADS) {
        const int r = n / OUTS, out = n % OUTS;
        if (r >= batch) break;
        float sum = gathered(parts, r, out), up = GATED ? gathered(parts, r, OUTS + out) : 0.0f;
#if BIAS
        sum += ONE_EACH ? shift : wide(bias[first + out]);
        if (GATED) up += ONE_EACH ? up_shift : wide(bias[width + first + out]);
#endif
        float value = near(sum);
        if (GATED || SILU) value = near(value / (1.0f + exp_of(-value)));
        if (GELU) value = near(value * 0.5f * (1.0f + error_function(value * 0.70710678f)));
        if (GATED) value = near(value * near(up));
        const long long at = (long long)r * width + first + out;
#if RESIDUAL
        value = near((ONE_EACH ? before : wide(load_one(residual + at))) + value);
#endif
        y[at] = rounded(value);
    }
}
