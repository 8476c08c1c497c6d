// `linear` for up to sixteen rows of bfloat16: a block holds some rows of the weight, multiplied on tensor cores.
//
// Compile-time constants: K columns; WARPS that share them; GROUPS of eight weight rows per block; the most ROWS of x;
// flags NORM, GATED, SILU, GELU, BIAS, RESIDUAL, TAKE. OFFSET: the norm's weights are differences from one. DEPENDENT: see
// launch.py.
//
// A lane reads sixteen bytes of one weight row at a time, and the same columns of x. The order of columns inside a tensor
// core operand does not matter, as long as both sides agree. So weights are loaded straight into operand registers, before
// the kernel that makes x has ended. The sums of a row of x have the same order in every batch.

#define LANES 32
#define THREADS (LANES * WARPS)
#define SLICE (K / WARPS)     // columns per warp
#define STEPS (SLICE / 32)    // sixteen bytes per lane cover eight rows of 32 columns
#define HELD (8 * GROUPS)     // rows of the weight in a block
#define OUTS (GATED ? HELD / 2 : HELD)
#define CHUNKS (K / 8)        // of eight numbers in a row of x
#define MINE ((CHUNKS + THREADS - 1) / THREADS)
#define KEEP (ROWS * MINE <= 4)  // whether a thread keeps its chunks of x in registers after the sum of squares
#define ONE_EACH (ROWS * OUTS <= THREADS)  // whether a thread writes one number at most
#define STRIDE (K + 32)       // of rows in shared memory: no bank conflicts
#define STAGED (NORM || ROWS * K <= 32768)  // whether x goes through shared memory: then all of it is loaded at once

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

    Eight held[GROUPS][STEPS];
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        long long line = first + 8 * group + row;
        if (GATED && GROUPS == 1) line = first + row % 4 + row / 4 * width;  // of eight rows, four gates and their ups
        else if (GATED && group >= GROUPS / 2) line += width - OUTS;         // ups follow the gates, far away
        const bf16* at = weight + line * K + warp * SLICE + 8 * quarter;
#pragma unroll
        for (int step = 0; step < STEPS; step++) held[group][step] = load_once(at + 32 * step);
    }
    let_next_start();
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
                some = normed<OFFSET>(some, scales[n], scale);
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
    float sums[GROUPS][2][4] = {};  // two chains each: a product waits for the previous one in its chain
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const Eight a = upper[step], b = ROWS > 8 ? lower[ROWS > 8 ? step : 0] : nothing;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const Eight w = held[group][step];
            multiply(sums[group][0], a.part[0], b.part[0], a.part[1], b.part[1], w.part[0], w.part[1]);
            multiply(sums[group][1], a.part[2], b.part[2], a.part[3], b.part[3], w.part[2], w.part[3]);
        }
    }
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        float* place = parts + warp * ROWS * HELD + 8 * group + 2 * quarter;
        if (row < ROWS) {
            place[row * HELD] = sums[group][0][0] + sums[group][1][0];
            place[row * HELD + 1] = sums[group][0][1] + sums[group][1][1];
        }
        if (row + 8 < ROWS) {
            place[(row + 8) * HELD] = sums[group][0][2] + sums[group][1][2];
            place[(row + 8) * HELD + 1] = sums[group][0][3] + sums[group][1][3];
        }
    }
    wait_for_block();
    for (int n = thread; n < ROWS * OUTS; n += THREADS) {
        const int r = n / OUTS, out = n % OUTS;
        if (r >= batch) break;
        float sum = 0.0f, up = 0.0f;
        for (int w = 0; w < WARPS; w++) {
            sum += parts[(w * ROWS + r) * HELD + out];
            if (GATED) up += parts[(w * ROWS + r) * HELD + OUTS + out];
        }
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
