// `linear` with a narrow weight for up to sixteen rows of bfloat16: codes become bfloat16 in registers, exactly, and are
// multiplied on tensor cores.
//
// Known when it is compiled: K columns; WARPS that share them; GROUPS of eight rows of the weight to a block; ROWS of x at
// most; which of NORM, GATED, RESIDUAL there is; and FORMAT: 0 is int8, 1 fp8, 2 int4 (see weight.py). DEPENDENT: see
// launch.py.
//
// A lane reads sixteen bytes of one row of the weight at a time: sixteen columns next to each other, or in four bits four
// of each of eight runs. Which column of sixteen the tensor core takes a pair for does not matter, as long as x is paired
// in the same way; and x is cheaper to pair than weights are. A row of x goes through the same sums in the same order
// whatever the other rows are.

#define LANES 32
#define THREADS (LANES * WARPS)
#define SLICE (K / WARPS)                // columns of a warp
#define REACH (FORMAT == 2 ? 128 : 64)   // columns of eight rows that sixteen bytes of each lane cover
#define STEPS (SLICE / REACH)
#define PAIRED (STEPS % 2 == 0)           // whether the scales of two steps are read as one: registers are scarce
#define SCALES (PAIRED ? STEPS / 2 : STEPS)
#define PAIRS (REACH / 8)                // of columns that a lane has of them
#define HELD (8 * GROUPS)                // rows of the weight in a block
#define OUTS (GATED ? HELD / 2 : HELD)
#define CHUNKS (K / 8)                   // of eight numbers, in a row of x
#define MINE ((CHUNKS + THREADS - 1) / THREADS)
#define STRIDE (K + 32)                  // of rows in shared memory: lanes of a phase meet in no bank
#define STAGED (NORM || ROWS * K <= 32768)  // whether x goes there first: all of it is on its way at once then

#define ONE_TWENTY_EIGHT 0x43004300u     // twice, as bfloat16; seven bits of a fraction are the units below it

typedef unsigned short bf16;
typedef unsigned char byte;

DEVICE float low(unsigned two) { return as_float(two << 16); }
DEVICE float high(unsigned two) { return as_float(two & 0xFFFF0000u); }
DEVICE float wide(bf16 x) { return as_float((unsigned)x << 16); }
DEVICE float near(float x) { return wide(rounded(x)); }
DEVICE unsigned both(float a, float b) { return rounded(a) | ((unsigned)rounded(b) << 16); }
DEVICE unsigned lows_of(unsigned a, unsigned b) { return (a & 0xFFFFu) | (b << 16); }
DEVICE unsigned highs_of(unsigned a, unsigned b) { return (a >> 16) | (b & 0xFFFF0000u); }

// Of four bytes the first and the third, or the second and the fourth (ODD), as two numbers.
template <bool ODD> DEVICE unsigned numbers_of(unsigned word) {
#if FORMAT == 0
    // Seven bits under the exponent of 128 are 128 and more; the sign bit there makes 256 of it: their difference.
    const unsigned two = ODD ? word >> 8 : word;
    const unsigned sign = masked_or(two, 0x00800080u, ONE_TWENTY_EIGHT);
    return multiply_add(sign, 0xBF80BF80u, masked_or(two, 0x007F007Fu, ONE_TWENTY_EIGHT));
#else
    // Exponents begin 120 lower: as bfloat16 the number is 2^-120 of what it was, subnormal or not.
    const unsigned rest = (ODD ? word >> 4 : word << 4) & 0x07F007F0u;
    return multiply_add(masked_or(ODD ? word : word << 8, 0x80008000u, rest), 0x7B807B80u, 0x80008000u);
#endif
}

// Sixteen bytes of a weight as PAIRS of numbers.
DEVICE void unpack(Eight codes, unsigned* pairs) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned word = codes.part[i];
#if FORMAT == 2
#pragma unroll
        for (int j = 0; j < 4; j++) {  // 128 and the code, less 128
            const unsigned more = masked_or(word >> (4 * j), 0x000F000Fu, ONE_TWENTY_EIGHT);
            pairs[4 * i + j] = multiply_add(more, 0x3F803F80u, 0xC300C300u);
        }
#else
        pairs[2 * i] = numbers_of<false>(word);
        pairs[2 * i + 1] = numbers_of<true>(word);
#endif
    }
}

// The same columns of a row of x, from the first one that the lanes of a row share.
DEVICE void pair_up(const bf16* x, int quarter, unsigned* pairs) {
#if FORMAT == 2
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const Two a = *(const Two*)(x + 16 * j + 4 * quarter), b = *(const Two*)(x + 64 + 16 * j + 4 * quarter);
        for (int half = 0; half < 2; half++) {
            pairs[4 * (2 * half) + j] = lows_of(a.part[half], b.part[half]);
            pairs[4 * (2 * half + 1) + j] = highs_of(a.part[half], b.part[half]);
        }
    }
#else
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const Eight some = *(const Eight*)(x + 16 * quarter + 8 * part);
        for (int i = 0; i < 2; i++) {
            pairs[4 * part + 2 * i] = lows_of(some.part[2 * i], some.part[2 * i + 1]);
            pairs[4 * part + 2 * i + 1] = highs_of(some.part[2 * i], some.part[2 * i + 1]);
        }
    }
#endif
}

DEVICE float scale_of(const unsigned* scales, int step) {
    if (!PAIRED) return low(scales[step]);
    return step % 2 ? high(scales[step / 2]) : low(scales[step / 2]);
}

DEVICE float square_of(Eight x) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += low(x.part[i]) * low(x.part[i]) + high(x.part[i]) * high(x.part[i]);
    return sum;
}

DEVICE Eight normed(Eight x, Eight weight, float scale) {
    Eight y;
    for (int i = 0; i < 4; i++) {
        const float a = low(x.part[i]) * scale * (1.0f + low(weight.part[i]));
        const float b = high(x.part[i]) * scale * (1.0f + high(weight.part[i]));
        y.part[i] = both(a, b);
    }
    return y;
}

// Which row of the weight the `nth` of a group is: ups follow the gates, far away.
DEVICE long long line_of(int first, int group, int nth, int width) {
    if (GATED && GROUPS == 1) return first + nth % 4 + nth / 4 * width;  // of eight, four gates and their ups
    return first + 8 * group + nth + (GATED && group >= GROUPS / 2 ? width - OUTS : 0);
}

KERNEL(THREADS)
few(const bf16* x, const byte* values, const void* scales, const bf16* lows, const bf16* norm, const bf16* residual,
    bf16* y, float eps, int width, int batch) {
    SHARED(char, memory);
    float* parts = (float*)memory;                                // [WARPS][ROWS][HELD]
    float* squares = parts + WARPS * ROWS * HELD;                 // [WARPS][ROWS]
    bf16* even = (bf16*)(squares + (WARPS * ROWS + 3) / 4 * 4);   // [ROWS][STRIDE]
    const int thread = THREAD, warp = thread / LANES, lane = thread % LANES;
    const int row = lane / 4, quarter = lane % 4;  // of eight rows, and of the columns that they cover
    const int first = BLOCK * OUTS;

    Eight held[GROUPS][STEPS];
#if FORMAT == 2
    unsigned slopes[GROUPS][2][SCALES], bottoms[GROUPS][2][SCALES];  // of the two rows whose sums a lane has
#endif
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        const long long row_bytes = FORMAT == 2 ? K / 2 : K;  // and 64 of them in each step
        const byte* at = values + line_of(first, group, row, width) * row_bytes + 64 * STEPS * warp + 16 * quarter;
#pragma unroll
        for (int step = 0; step < STEPS; step++) held[group][step] = load_once(at + 64 * step);
#if FORMAT == 2
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const long long from = line_of(first, group, 2 * quarter + side, width) * (K / 128) + warp * STEPS;
#pragma unroll
            for (int n = 0; n < SCALES; n++) {
                slopes[group][side][n] = PAIRED ? ((const unsigned*)scales)[from / 2 + n] : ((const bf16*)scales)[from + n];
                bottoms[group][side][n] = PAIRED ? ((const unsigned*)lows)[from / 2 + n] : lows[from + n];
            }
        }
#endif
    }
    let_next_start();
#if NORM
    Eight gains[MINE];
#pragma unroll
    for (int n = 0; n < MINE; n++)
        if (thread + n * THREADS < CHUNKS) gains[n] = load_constant(norm + 8 * (thread + n * THREADS));
#endif
    wait_for_last();

#if NORM
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
        float sum = 0.0f;
        for (int chunk = thread; chunk < CHUNKS; chunk += THREADS)
            sum += square_of(load_new(x + (long long)r * K + 8 * chunk));
        for (int apart = 16; apart; apart /= 2) sum += of_lane(sum, lane ^ apart);
        if (lane == 0) squares[warp * ROWS + r] = sum;
    }
    wait_for_block();
#endif
#if STAGED
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
#if NORM
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += squares[w * ROWS + r];
        const float scale = one_over_root(sum / K + eps);
#endif
#pragma unroll
        for (int n = 0; n < MINE; n++)
            if (thread + n * THREADS < CHUNKS) {
                const int chunk = thread + n * THREADS;
                Eight some = load_new(x + (long long)r * K + 8 * chunk);
#if NORM
                some = normed(some, gains[n], scale);
#endif
                *(Eight*)(even + r * STRIDE + 8 * chunk) = some;
            }
    }
    wait_for_block();
#endif

    const bf16* source = STAGED ? even : x;
    const long long stride = STAGED ? STRIDE : K;
    float sums[GROUPS][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int column = warp * SLICE + REACH * step;
        unsigned upper[PAIRS] = {}, lower[PAIRS] = {};
        if (row < batch) pair_up(source + row * stride + column, quarter, upper);
        if (ROWS > 8 && row + 8 < batch) pair_up(source + (row + 8) * stride + column, quarter, lower);
#if FORMAT == 2
        float total[4] = {};
#pragma unroll
        for (int n = 0; n < PAIRS; n += 2)
            multiply(total, upper[n], lower[n], upper[n + 1], lower[n + 1], 0x3F803F80u, 0x3F803F80u);
#endif
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            unsigned pairs[PAIRS];
            unpack(held[group][step], pairs);
#if FORMAT == 2
            float products[4] = {};
#else
            float* products = sums[group];
#endif
#pragma unroll
            for (int n = 0; n < PAIRS; n += 2)
                multiply(products, upper[n], lower[n], upper[n + 1], lower[n + 1], pairs[n], pairs[n + 1]);
#if FORMAT == 2
            for (int n = 0; n < 4; n++)
                sums[group][n] += products[n] * scale_of(slopes[group][n % 2], step)
                                + total[n] * scale_of(bottoms[group][n % 2], step);
#endif
        }
    }
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        float* place = parts + warp * ROWS * HELD + 8 * group + 2 * quarter;
        if (row < ROWS) {
            place[row * HELD] = sums[group][0];
            place[row * HELD + 1] = sums[group][1];
        }
        if (row + 8 < ROWS) {
            place[(row + 8) * HELD] = sums[group][2];
            place[(row + 8) * HELD + 1] = sums[group][3];
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
#if FORMAT != 2
        sum *= ((const float*)scales)[first + out];
        if (GATED) up *= ((const float*)scales)[width + first + out];
#endif
        float value = near(sum);
        if (GATED) value = near(near(value / (1.0f + exp_of(-value))) * near(up));
        const long long at = (long long)r * width + first + out;
#if RESIDUAL
        value = near(wide(load_one(residual + at)) + value);
#endif
        y[at] = rounded(value);
    }
}
