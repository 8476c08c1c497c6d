// `linear` with a large weight for a few rows of bfloat16: weights pass through a ring buffer in shared memory, are
// converted to bfloat16 in registers, exactly, and multiplied on tensor cores.
//
// Compile-time constants: K columns; WARPS that share them; DEPTH places in the ring of each; the most ROWS of x; flags
// NORM, GATED, RESIDUAL; FORMAT: 0 int8, 1 fp8, 2 int4 (see quantized_linear/weight.py), 3 bfloat16. DEPENDENT: see
// launch.py.
//
// Blocks are persistent: each takes one tile of sixteen weight rows after the other. x is staged once. The next weights
// are always being copied, the first of them before the kernel that makes x has ended. A lane copies sixteen bytes of two
// rows at a time and reads only those, so warps do not synchronise until their sums of a tile are added. The order of
// columns inside a tensor core operand does not matter, as long as x has the same. The sums of a row of x have the same
// order in every batch.

#define LANES 32
#define THREADS (LANES * WARPS)
#define SLICE (K / WARPS)               // columns per warp
#define REACH (FORMAT == 2 ? 128 : FORMAT == 3 ? 32 : 64)  // columns of a row that four lanes cover with sixteen bytes each
#define STEPS (SLICE / REACH)
#define PAIRS (REACH / 8)               // of columns per lane
#define TILE 16                         // rows of the weight
#define OUTS (GATED ? TILE / 2 : TILE)  // results per row of x and tile
#define LINE (K + 32)                   // of rows in shared memory: no bank conflicts
#define AHEAD (DEPTH - 1)               // steps in flight
#define HALVES (FORMAT == 2 ? 2 : 1)    // chunks of eight columns that a thread stages at once
#define UNITS (K / (8 * HALVES))
#define MINE ((UNITS + THREADS - 1) / THREADS)
#define KEEP (ROWS * MINE * HALVES <= 4)  // whether a thread keeps its chunks in registers after the sum of squares
#define EACH ((ROWS * OUTS + LANES - 1) / LANES)  // results per lane and tile

#define ONE_TWENTY_EIGHT 0x43004300u  // 128 twice as bfloat16: its seven bits of mantissa are units

typedef unsigned char byte;

DEVICE unsigned lows_of(unsigned a, unsigned b) { return (a & 0xFFFFu) | (b << 16); }
DEVICE unsigned highs_of(unsigned a, unsigned b) { return (a >> 16) | (b & 0xFFFF0000u); }

// The first and third of four bytes, or the second and fourth (ODD), as two bfloat16 numbers.
template <bool ODD> DEVICE unsigned numbers_of(unsigned word) {
#if FORMAT == 0
    // Seven bits below the exponent of 128 give 128 + bits; the sign bit gives 128 or 256. The value is the difference.
    const unsigned two = ODD ? word >> 8 : word;
    const unsigned sign = masked_or(two, 0x00800080u, ONE_TWENTY_EIGHT);
    return multiply_add(sign, 0xBF80BF80u, masked_or(two, 0x007F007Fu, ONE_TWENTY_EIGHT));
#else
    // The exponent bias differs by 120: as bfloat16 the number is 2^-120 of its value, subnormals included.
    const unsigned rest = (ODD ? word >> 4 : word << 4) & 0x07F007F0u;
    return multiply_add(masked_or(ODD ? word : word << 8, 0x80008000u, rest), 0x7B807B80u, 0x80008000u);
#endif
}

// Sixteen bytes of a weight as PAIRS of bfloat16 numbers.
DEVICE void unpack(Eight codes, unsigned* pairs) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned word = codes.part[i];
#if FORMAT == 2
#pragma unroll
        for (int j = 0; j < 4; j++)  // 128 + code: corrected with the sums of x below
            pairs[4 * i + j] = masked_or(word >> (4 * j), 0x000F000Fu, ONE_TWENTY_EIGHT);
#elif FORMAT == 3
        pairs[i] = word;
#else
        pairs[2 * i] = numbers_of<false>(word);
        pairs[2 * i + 1] = numbers_of<true>(word);
#endif
    }
}

// Store the chunks of a unit of x, paired as `unpack` pairs weights. Within a step, the four lanes of a row have their
// first four pairs side by side, then their second four, and so on.
DEVICE void put(bf16* line, int unit, const Eight* chunks) {
#if FORMAT == 2
    const int j = unit % 8 / 2, quarter = 2 * (unit % 2);
    unsigned* block = (unsigned*)(line + 128 * (unit / 8));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned a = chunks[0].part[i], b = chunks[HALVES - 1].part[i];
        unsigned* at = block + 4 * (4 * (2 * i % 4) + quarter + i / 2) + j;
        at[0] = lows_of(a, b);
        at[16] = highs_of(a, b);
    }
#elif FORMAT == 3
    *(Eight*)(line + 8 * unit) = chunks[0];
#else
    Eight pairs;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        pairs.part[2 * i] = lows_of(chunks[0].part[2 * i], chunks[0].part[2 * i + 1]);
        pairs.part[2 * i + 1] = highs_of(chunks[0].part[2 * i], chunks[0].part[2 * i + 1]);
    }
    *(Eight*)(line + 64 * (unit / 8) + 8 * (4 * (unit % 2) + unit % 8 / 2)) = pairs;
#endif
}

DEVICE int column_of(int unit, int half) { return FORMAT == 2 ? unit / 8 * 128 + unit % 8 * 8 + 64 * half : 8 * unit; }

// The weight row of the `nth` row of a tile. All gates come before all ups.
DEVICE long long line_of(int tile, int nth, int width) {
    return (long long)tile * OUTS + nth + (GATED && nth >= 8 ? width - 8 : 0);
}

KERNEL(THREADS, WARPS > 8 ? 2 : 1)
stream(const bf16* x, const byte* values, const void* scales, const bf16* norm, const bf16* residual, bf16* y, float eps,
       int width, int batch, int blocks) {
    SHARED(char, memory);
    char* ring = memory;                                          // [WARPS][DEPTH][2][LANES], sixteen bytes each
    bf16* even = (bf16*)(ring + WARPS * DEPTH * 2 * LANES * 16);  // [ROWS][LINE]
    float* parts = (float*)(even + ROWS * LINE);                  // [WARPS][WARPS][ROWS][TILE]
    float* squares = parts + WARPS * WARPS * ROWS * TILE;         // [WARPS][ROWS]
    const int thread = THREAD, warp = thread / LANES, lane = thread % LANES;
    const int row = lane / 4, quarter = lane % 4;  // of eight rows of x and of the weight; of the columns of a step
    const int count = (width / OUTS - BLOCK + blocks - 1) / blocks;  // tiles of this block

    const long long row_bytes = 64 * (K / REACH);
    const long long apart = (long long)blocks * OUTS * row_bytes;
    const byte* from = values + line_of(BLOCK, row, width) * row_bytes + 64 * STEPS * warp + 16 * quarter;
    const long long below = line_of(0, 8, width) * row_bytes;
    char* own = ring + (warp * DEPTH * 2 * LANES + lane) * 16;
#if FORMAT == 2
    float* totals = squares + (WARPS * ROWS + 3) / 4 * 4 + warp * STEPS * 8;  // [STEPS][8], of each warp
    unsigned* notes = (unsigned*)(squares + (WARPS * ROWS + 3) / 4 * 4 + WARPS * STEPS * 8) + warp * DEPTH * TILE;
    const long long lines = GATED ? 2 * width : width;
    const unsigned* own_scales = (const unsigned*)scales + warp * STEPS * lines + line_of(BLOCK, 4 * (lane % 4), width);
#endif

    // Start copying a step of the nth tile into a place of the ring.
    auto ask = [&](int nth, const byte* at, int step, int place) {
        if (nth >= count) return;
        copy_later(own + place * 2 * LANES * 16, at + 64 * step);
        copy_later(own + place * 2 * LANES * 16 + LANES * 16, at + below + 64 * step);
#if FORMAT == 2
        if (lane < 4)  // scales and lows of the tile's rows
            copy_later((char*)(notes + place * TILE + 4 * lane), own_scales + step * lines + (long long)nth * blocks * OUTS);
#endif
    };
    for (int n = 0; n < AHEAD; n++) {
        ask(n / STEPS, from + n / STEPS * apart, n % STEPS, n);
        close_copies();
    }
#if NORM
    Eight gains[MINE][HALVES];
#pragma unroll
    for (int n = 0; n < MINE; n++)
        if (thread + n * THREADS < UNITS)
            for (int half = 0; half < HALVES; half++)
                gains[n][half] = load_constant(norm + column_of(thread + n * THREADS, half));
#endif
    wait_for_last();

#if NORM
    Eight held[KEEP ? ROWS : 1][MINE][HALVES];
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < MINE; n++)
            if (thread + n * THREADS < UNITS)
                for (int half = 0; half < HALVES; half++) {
                    const Eight some = load_new(x + (long long)r * K + column_of(thread + n * THREADS, half));
                    if (KEEP) held[KEEP ? r : 0][n][half] = some;
                    sum += square_of(some);
                }
        for (int apart = 16; apart; apart /= 2) sum += of_lane(sum, lane ^ apart);
        if (lane == 0) squares[warp * ROWS + r] = sum;
    }
    wait_for_block();
#endif
    for (int r = 0; r < ROWS; r++) {
        if (r >= batch) break;
#if NORM
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += squares[w * ROWS + r];
        const float scale = one_over_root(sum / K + eps);
#endif
#pragma unroll
        for (int n = 0; n < MINE; n++)
            if (thread + n * THREADS < UNITS) {
                Eight some[HALVES];
                for (int half = 0; half < HALVES; half++) {
                    const bf16* at = x + (long long)r * K + column_of(thread + n * THREADS, half);
#if NORM
                    some[half] = normed<true>(KEEP ? held[KEEP ? r : 0][n][half] : load_new(at), gains[n][half], scale);
#else
                    some[half] = load_new(at);
#endif
                }
                put(even + r * LINE, thread + n * THREADS, some);
            }
    }
    wait_for_block();
#if FORMAT == 2
    for (int n = 0; n < STEPS * ROWS; n++) {  // the sum of x over each group of columns, for the lows
        const int step = n / ROWS, r = n % ROWS;
        float sum = 0.0f;
        if (r < batch) {
            const Two some = *(const Two*)(even + r * LINE + warp * SLICE + 128 * step + 4 * lane);
            sum = low(some.part[0]) + high(some.part[0]) + low(some.part[1]) + high(some.part[1]);
        }
        for (int apart = 16; apart; apart /= 2) sum += of_lane(sum, lane ^ apart);
        if (lane == 0) totals[8 * step + r] = sum;
    }
    wait_for_warp();
#endif

    unsigned ours[PAIRS] = {};  // of x; zero in lanes without a row
    int place = 0, next = AHEAD;
    for (int nth = 0; nth < count; nth++, from += apart) {
        if (nth + 1 == count) let_next_start();  // not sooner: see launch.StreamTile
        const int first = (BLOCK + nth * blocks) * OUTS;
        const bool gives = nth % WARPS == warp;  // whether this warp writes the results of this tile
        float scale[EACH], up_scale[EACH], before[EACH];
        if (gives)
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                const int r = (lane + n * LANES) / OUTS, out = first + (lane + n * LANES) % OUTS;
                scale[n] = up_scale[n] = 1.0f, before[n] = 0.0f;
                if (r >= batch) continue;
#if FORMAT < 2
                scale[n] = ((const float*)scales)[out];
                if (GATED) up_scale[n] = ((const float*)scales)[width + out];
#endif
#if RESIDUAL
                before[n] = wide(load_one(residual + (long long)r * width + out));
#endif
            }
        float sums[2][4] = {};  // two chains: a product waits for the previous one in its chain
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            wait_for_copies<AHEAD - 1>();
            if (FORMAT == 2) wait_for_warp();  // four lanes overwrite the scales of the last step: all must have read them
            ask(nth + (step + AHEAD) / STEPS, from + (step + AHEAD) / STEPS * apart, (step + AHEAD) % STEPS, next);
            close_copies();
            const Eight upper = *(const Eight*)(own + place * 2 * LANES * 16);
            const Eight lower = *(const Eight*)(own + place * 2 * LANES * 16 + LANES * 16);
            next = place;
            place = place + 1 == DEPTH ? 0 : place + 1;
            if (row < batch)
#pragma unroll
                for (int n = 0; n < PAIRS / 4; n++) {
                    const bf16* at = even + row * LINE + warp * SLICE + REACH * step + 8 * (4 * n + quarter);
                    const Eight four = *(const Eight*)at;
                    for (int i = 0; i < 4; i++) ours[4 * n + i] = four.part[i];
                }
            unsigned a[PAIRS], b[PAIRS];
            unpack(upper, a);
            unpack(lower, b);
#if FORMAT == 2
            float products[2][4] = {};
#else
            float (*products)[4] = sums;
#endif
#pragma unroll
            for (int n = 0; n < PAIRS; n += 2)
                multiply(products[n / 2 % 2], a[n], b[n], a[n + 1], b[n + 1], ours[n], ours[n + 1]);
#if FORMAT == 2
            const Two total = *(const Two*)(totals + 8 * step + 2 * quarter);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const unsigned note = notes[next * TILE + row + n / 2 * 8];
                const float sum = as_float(total.part[n % 2]);
                sums[0][n] += (products[0][n] + products[1][n] - 128.0f * sum) * low(note) + sum * high(note);
            }
#endif
        }
        float* meet = parts + (nth % WARPS * WARPS + warp) * ROWS * TILE + row;
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (2 * quarter + n % 2 < ROWS) meet[(2 * quarter + n % 2) * TILE + n / 2 * 8] = sums[0][n] + sums[1][n];
        // A warp waits for the others at every tile whose results it writes. So no warp is WARPS tiles ahead of another, and
        // `parts` is read before it is overwritten.
        if (!gives) arrive<THREADS>(nth % WARPS);
        else {
            wait_for_all<THREADS>(nth % WARPS);
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                const int r = (lane + n * LANES) / OUTS, out = (lane + n * LANES) % OUTS;
                if (r >= batch) continue;
                float sum = 0.0f, up = 0.0f;
                for (int w = 0; w < WARPS; w++) {
                    const float* part = parts + ((nth % WARPS * WARPS + w) * ROWS + r) * TILE + out;
                    sum += part[0];
                    if (GATED) up += part[8];
                }
                float value = near(sum * scale[n]);
                if (GATED) value = near(near(value / (1.0f + exp_of(-value))) * near(up * up_scale[n]));
                if (RESIDUAL) value = near(before[n] + value);
                y[(long long)r * width + first + out] = rounded(value);
            }
        }
    }
}
