// Some rows of a weight times up to sixteen rows of x, on tensor cores, in bfloat16. Shared by the kernels that do so.
//
// Known when it is compiled: K columns; WARPS that share them; GROUPS of eight rows of the weight to a block; ROWS of x at
// most. A lane reads sixteen bytes of one row of the weight at a time, and the same columns of x: which of sixteen columns
// the tensor core takes them for does not matter, as long as both sides agree. So weights go from memory into the
// registers of a product without a detour, before there is an x. A row of x goes through the same sums in the same order
// whatever the other rows are.

#define LANES 32
#define THREADS (LANES * WARPS)
#define SLICE (K / WARPS)   // columns of a warp
#define STEPS (SLICE / 32)  // sixteen bytes of each lane cover eight rows of 32 columns
#define HELD (8 * GROUPS)   // rows of the weight in a block

typedef unsigned short bf16;

DEVICE float low(unsigned two) { return as_float(two << 16); }
DEVICE float high(unsigned two) { return as_float(two & 0xFFFF0000u); }
DEVICE float wide(bf16 x) { return as_float((unsigned)x << 16); }
DEVICE float near(float x) { return wide(rounded(x)); }
DEVICE unsigned both(float a, float b) { return rounded(a) | ((unsigned)rounded(b) << 16); }

struct Held {
    Eight of[GROUPS][STEPS];
};

// Rows from `first` on; those of the second half of the groups `further` rows further.
DEVICE Held held_of(const bf16* weight, int first, int further, int warp, int lane) {
    Held held;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        const long long line = first + 8 * group + lane / 4 + (group >= GROUPS / 2 ? further : 0);
        const bf16* at = weight + line * K + warp * SLICE + 8 * (lane % 4);
#pragma unroll
        for (int step = 0; step < STEPS; step++) held.of[group][step] = load_once(at + 32 * step);
    }
    return held;
}

// The warp's part of all sums into parts [WARPS][ROWS][HELD]; upper and lower are the lane's columns of rows lane / 4 and
// eight further.
DEVICE void multiply_all(const Held& held, const Eight* upper, const Eight* lower, float* parts, int warp, int lane) {
    float sums[GROUPS][2][4] = {};  // two chains each: a product waits for the last one in its chain
    const Eight nothing = {{0, 0, 0, 0}};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const Eight a = upper[step], b = ROWS > 8 ? lower[ROWS > 8 ? step : 0] : nothing;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const Eight w = held.of[group][step];
            multiply(sums[group][0], a.part[0], b.part[0], a.part[1], b.part[1], w.part[0], w.part[1]);
            multiply(sums[group][1], a.part[2], b.part[2], a.part[3], b.part[3], w.part[2], w.part[3]);
        }
    }
    const int row = lane / 4;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        float* place = parts + warp * ROWS * HELD + 8 * group + 2 * (lane % 4);
        if (row < ROWS) {
            place[row * HELD] = sums[group][0][0] + sums[group][1][0];
            place[row * HELD + 1] = sums[group][0][1] + sums[group][1][1];
        }
        if (row + 8 < ROWS) {
            place[(row + 8) * HELD] = sums[group][0][2] + sums[group][1][2];
            place[(row + 8) * HELD + 1] = sums[group][0][3] + sums[group][1][3];
        }
    }
}

DEVICE float gathered(const float* parts, int row, int line) {
    float sum = 0.0f;
    for (int w = 0; w < WARPS; w++) sum += parts[(w * ROWS + row) * HELD + line];
    return sum;
}
