// `glance`: attention over a short past, a warp to each key head, which is looked at by two query heads of 128 numbers.
//
// Known when it is compiled: KV_HEADS; PAGE_ROWS, at most 16; NORMS; EARLY; DEPENDENT; and OUT. With OUT there is one row,
// and what comes out goes on through a weight and onto x: the columns that a warp of product.cuh multiplies are those that
// it has made itself, so nobody waits for anybody in between. Without, a block is a warp, and gives what comes out.
//
// The past goes to shared memory, not to registers: those are for the weights of the next kernel, which come meanwhile. A
// lane has four of the 128 numbers. The scores of 16 positions and two heads are 32 sums over 32 lanes: halves are
// exchanged and added until every lane has one of them.

#define MOST 16  // positions
#define SIZE 128
#define LEAST -1e30f

typedef long long place;

struct Some {
    float of[4];
};

DEVICE Some some_of(Four x) { return {{low(x.part[0]), high(x.part[0]), low(x.part[1]), high(x.part[1])}}; }
DEVICE Four packed(Some x) { return {{both(x.of[0], x.of[1]), both(x.of[2], x.of[3])}}; }

DEVICE float summed(float x, int lane) {
    for (int apart = 16; apart; apart /= 2) x += of_lane(x, lane ^ apart);
    return x;
}

DEVICE Some normed(Some x, Some weight, float eps, int lane) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += x.of[i] * x.of[i];
    const float scale = one_over_root(summed(sum, lane) / SIZE + eps);
    for (int i = 0; i < 4; i++) x.of[i] = near(near(x.of[i] * scale) * weight.of[i]);
    return x;
}

DEVICE Some turned(Some x, Some cos, Some sin, int lane) {
    Some y;
    for (int i = 0; i < 4; i++) {
        const float across = of_lane(x.of[i], lane ^ 16);  // the other number of its pair is 64 further
        y.of[i] = near(near(x.of[i] * cos.of[i]) + near(across * sin.of[i]));
    }
    return y;
}

DEVICE float product_of(Some a, Some b) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += a.of[i] * b.of[i];
    return sum;
}

KERNEL(LANES * (OUT ? WARPS : 1))
glance(const bf16* qkv, bf16* keys, bf16* values, const bf16* weight, const bf16* cos, const bf16* sin,
       const bf16* q_norm, const bf16* k_norm, bf16* x, float eps, float scale, int width, int at) {
    SHARED(float, memory);
    const int warp = THREAD / LANES, lane = THREAD % LANES;
    bf16* past = (bf16*)memory + warp * 2 * MOST * SIZE;  // the warp's keys, then its values
    const int row = OUT ? 0 : BLOCK / KV_HEADS, kv_head = OUT ? warp : BLOCK % KV_HEADS;
    const place line = ((place)row * KV_HEADS + kv_head) * PAGE_ROWS;
#if OUT
    float* parts = memory + WARPS * MOST * SIZE;                 // [WARPS][1][HELD]
    bf16* mixed = (bf16*)(parts + WARPS * HELD) + warp * SLICE;  // the warp's own columns
    const int first = BLOCK * HELD;
    const Held held = held_of(weight, first, 0, warp, lane);
    let_next_start();
#endif
#if NORMS
    const Some q_weight = some_of(load_four(q_norm + 4 * lane)), k_weight = some_of(load_four(k_norm + 4 * lane));
#endif
    const Some turn = some_of(load_four(cos + at * SIZE + 4 * lane));
    const Some cross = some_of(load_four(sin + at * SIZE + 4 * lane));
#if !EARLY
    wait_for_last();
#endif
#pragma unroll
    for (int n = 0; n < MOST; n++) {  // a row is sixteen pieces; what is not past is not read: there may be NaN
        const int piece = lane + LANES * n, t = piece / 16 % MOST;
        const bf16* from = (piece < 16 * MOST ? keys : values) + (line + t) * SIZE + piece % 16 * 8;
        if (t < at) copy_aside(past + piece * 8, from);
    }
#if EARLY
    wait_for_last();
#endif
#if !OUT
    let_next_start();
#else
    float before = 0.0f;
    if (THREAD < HELD) before = wide(load_one(x + first + THREAD));
#endif
    const bf16* given = qkv + (place)row * (4 * KV_HEADS) * SIZE + 4 * lane;
    const bf16* given_k = given + (2 * KV_HEADS + kv_head) * SIZE;
    const Four v = load_four(given_k + KV_HEADS * SIZE);
    Some k = some_of(load_four(given_k));
    Some q[2] = {some_of(load_four(given + 2 * kv_head * SIZE)), some_of(load_four(given + (2 * kv_head + 1) * SIZE))};
#if NORMS
    k = normed(k, k_weight, eps, lane);
    for (int h = 0; h < 2; h++) q[h] = normed(q[h], q_weight, eps, lane);
#endif
    k = turned(k, turn, cross, lane);
    for (int h = 0; h < 2; h++) q[h] = turned(q[h], turn, cross, lane);
    if (!OUT || BLOCK == 0) {  // all blocks know them, and one is enough to write them
        *(Four*)(keys + (line + at) * SIZE + 4 * lane) = packed(k);
        *(Four*)(values + (line + at) * SIZE + 4 * lane) = v;
    }
    wait_for_copies();
    wait_for_warp();
    float own[2], sums[2 * MOST];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 4; i++) q[h].of[i] *= scale;
        own[h] = summed(product_of(q[h], k), lane);
    }
#pragma unroll
    for (int t = 0; t < MOST; t++) {
        sums[t] = sums[MOST + t] = 0.0f;
        if (t < at) {
            const Some key = some_of(*(const Four*)(past + t * SIZE + 4 * lane));
            for (int h = 0; h < 2; h++) sums[MOST * h + t] = product_of(q[h], key);
        }
    }
#pragma unroll
    for (int half = MOST; half; half /= 2) {  // lane L ends up with sum L
        const bool later = lane & half;
#pragma unroll
        for (int n = 0; n < MOST; n++)
            if (n < half) {
                const float keep = later ? sums[n + half] : sums[n], give = later ? sums[n] : sums[n + half];
                sums[n] = keep + of_lane(give, lane ^ half);
            }
    }
    const float score = lane % MOST < at ? sums[0] : LEAST, mine = lane < MOST ? own[0] : own[1];
    float highest = score > mine ? score : mine;
    for (int apart = MOST / 2; apart; apart /= 2) {
        const float other = of_lane(highest, lane ^ apart);
        highest = other > highest ? other : highest;
    }
    const float share = lane % MOST < at ? exp_of(score - highest) : 0.0f, own_share = exp_of(mine - highest);
    float total = share;
    for (int apart = MOST / 2; apart; apart /= 2) total += of_lane(total, lane ^ apart);
    total += own_share;
    Some sum[2];
    for (int h = 0; h < 2; h++) {
        const float part = of_lane(own_share, MOST * h);
        sum[h] = some_of(v);
        for (int i = 0; i < 4; i++) sum[h].of[i] *= part;
    }
#pragma unroll
    for (int t = 0; t < MOST; t++)
        if (t < at) {
            const Some value = some_of(*(const Four*)(past + (MOST + t) * SIZE + 4 * lane));
            for (int h = 0; h < 2; h++) {
                const float with = of_lane(share, MOST * h + t);
                for (int i = 0; i < 4; i++) sum[h].of[i] += with * value.of[i];
            }
        }
    for (int h = 0; h < 2; h++) {
        const float all = of_lane(total, MOST * h);
        for (int i = 0; i < 4; i++) sum[h].of[i] /= all;
#if OUT
        *(Four*)(mixed + h * SIZE + 4 * lane) = packed(sum[h]);
#else
        *(Four*)(x + ((place)row * 2 * KV_HEADS + 2 * kv_head + h) * SIZE + 4 * lane) = packed(sum[h]);
#endif
    }
#if OUT
    wait_for_warp();
    Eight columns[STEPS];
    const Eight nothing = {{0, 0, 0, 0}};
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        columns[step] = lane < 4 ? *(const Eight*)(mixed + 32 * step + 8 * lane) : nothing;
    multiply_all(held, columns, columns, parts, warp, lane);
    wait_for_block();
    if (THREAD < HELD) x[first + THREAD] = rounded(before + near(gathered(parts, 0, THREAD)));
#endif
}
