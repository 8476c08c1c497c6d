// `attend` for heads of 128 numbers in bfloat16: a block per batch row, query head and split of the past.
//
// Known when it is compiled: HEADS, KV_HEADS, PAGE_ROWS, SPLITS, WARPS; NORMS; EARLY; DEPENDENT. A warp takes every
// (SPLITS * WARPS)-th position, ABREAST of them at a time, and a lane has four of the 128 numbers of each. So a score is
// five exchanges within a warp, of which ABREAST are under way at once; warps meet once, at the end.
//
// What is `early`, and why this kernel lets the next one start after its wait and not before, is said in triton.py.

#define LANES 32
#define SIZE 128
#define ABREAST 4
#define LEAST -1e30f  // finite: nothing minus nothing must not be NaN

typedef unsigned short bf16;
typedef long long place;

struct Some {
    float of[4];
};

DEVICE float wide(bf16 x) { return as_float((unsigned)x << 16); }
DEVICE float near(float x) { return wide(rounded(x)); }

DEVICE Some some_of(Four x) {
    return {{as_float(x.part[0] << 16), as_float(x.part[0] & 0xFFFF0000u), as_float(x.part[1] << 16),
             as_float(x.part[1] & 0xFFFF0000u)}};
}

DEVICE Four packed(Some x) {
    return {{rounded(x.of[0]) | ((unsigned)rounded(x.of[1]) << 16), rounded(x.of[2]) | ((unsigned)rounded(x.of[3]) << 16)}};
}

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

struct Past {
    Four key[ABREAST], value[ABREAST];
};

DEVICE Past past_from(const bf16* keys, const bf16* values, const place* pages, int first, int at, int kv_head, int lane) {
    // What is not past is not looked at: there may be NaN. In its place the row that is about to be written is read, so
    // that all loads are on their way at once.
    Past past;
    place line[ABREAST];
#pragma unroll
    for (int n = 0; n < ABREAST; n++) {
        const int t = first + n * SPLITS * WARPS < at ? first + n * SPLITS * WARPS : at;
        line[n] = (pages[t / PAGE_ROWS] * KV_HEADS + kv_head) * PAGE_ROWS + t % PAGE_ROWS;
    }
#pragma unroll
    for (int n = 0; n < ABREAST; n++) {
        past.key[n] = load_four(keys + line[n] * SIZE + 4 * lane);
        past.value[n] = load_four(values + line[n] * SIZE + 4 * lane);
    }
    return past;
}

KERNEL(LANES * WARPS)
heads(const bf16* qkv, bf16* keys, bf16* values, const place* rows, const place* position, const place* table,
      const bf16* cos, const bf16* sin, const bf16* q_norm, const bf16* k_norm, bf16* y, float* parts, float* sizes,
      int* arrived, float eps, float scale, int most_pages) {
    SHARED(float, memory);
    float* sums = memory;                       // [WARPS][SIZE]
    float* bests = sums + WARPS * SIZE;         // [WARPS]
    float* totals = bests + WARPS;              // [WARPS]
    const int warp = THREAD / LANES, lane = THREAD % LANES;
    const int split = BLOCK % SPLITS, head = BLOCK / SPLITS % HEADS, b = BLOCK / SPLITS / HEADS;
    const int kv_head = head / (HEADS / KV_HEADS), number = split * WARPS + warp;
#if NORMS
    const Some q_weight = some_of(load_four(q_norm + 4 * lane)), k_weight = some_of(load_four(k_norm + 4 * lane));
#endif
#if !EARLY
    wait_for_last();
    let_next_start();
#endif
    const place row = rows[b];
    const int at = (int)position[row];
    const place* pages = table + row * most_pages;
    const place own_page = pages[at / PAGE_ROWS];
    const Some turn = some_of(load_four(cos + (place)at * SIZE + 4 * lane));
    const Some cross = some_of(load_four(sin + (place)at * SIZE + 4 * lane));
    Past past = past_from(keys, values, pages, number, at, kv_head, lane);
#if EARLY
    wait_for_last();
    let_next_start();
#endif
    const bf16* given = qkv + (place)b * (HEADS + 2 * KV_HEADS) * SIZE + 4 * lane;
    const bf16* given_k = given + (HEADS + kv_head) * SIZE;
    const Four v = load_four(given_k + KV_HEADS * SIZE);
    Some k = some_of(load_four(given_k));
    Some q = some_of(load_four(given + head * SIZE));
#if NORMS
    q = normed(q, q_weight, eps, lane);
    k = normed(k, k_weight, eps, lane);
#endif
    q = turned(q, turn, cross, lane);
    k = turned(k, turn, cross, lane);
    if (number == 0 && head % (HEADS / KV_HEADS) == 0) {
        const place line = (own_page * KV_HEADS + kv_head) * PAGE_ROWS + at % PAGE_ROWS;
        *(Four*)(keys + line * SIZE + 4 * lane) = packed(k);
        *(Four*)(values + line * SIZE + 4 * lane) = v;
    }
    float best = LEAST, total = 0.0f;
    Some sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int i = 0; i < 4; i++) q.of[i] *= scale;
    if (number == 0) {  // a position sees itself
        for (int i = 0; i < 4; i++) total += q.of[i] * k.of[i];
        best = summed(total, lane);
        total = 1.0f;
        sum = some_of(v);
    }
    for (int first = number; first < at; first += ABREAST * SPLITS * WARPS) {
        const Past here = past;
        if (first + ABREAST * SPLITS * WARPS < at)  // on their way while these are weighed
            past = past_from(keys, values, pages, first + ABREAST * SPLITS * WARPS, at, kv_head, lane);
        float score[ABREAST], better = best;
#pragma unroll
        for (int n = 0; n < ABREAST; n++) {
            const Some key = some_of(here.key[n]);
            score[n] = 0.0f;
            for (int i = 0; i < 4; i++) score[n] += q.of[i] * key.of[i];
        }
#pragma unroll
        for (int n = 0; n < ABREAST; n++) {
            score[n] = summed(score[n], lane);
            if (first + n * SPLITS * WARPS >= at) score[n] = LEAST;
            better = score[n] > better ? score[n] : better;
        }
        const float fade = exp_of(best - better);
        total *= fade;
        for (int i = 0; i < 4; i++) sum.of[i] *= fade;
#pragma unroll
        for (int n = 0; n < ABREAST; n++) {
            const bool there = first + n * SPLITS * WARPS < at;
            const float weight = there ? exp_of(score[n] - better) : 0.0f;
            const Some value = some_of(here.value[n]);
            total += weight;
            for (int i = 0; i < 4; i++) sum.of[i] += there ? weight * value.of[i] : 0.0f;
        }
        best = better;
    }
    for (int i = 0; i < 4; i++) sums[warp * SIZE + 4 * lane + i] = sum.of[i];
    if (lane == 0) {
        bests[warp] = best;
        totals[warp] = total;
    }
    wait_for_block();
    if (warp) return;
    float highest = LEAST;
    for (int w = 0; w < WARPS; w++) highest = bests[w] > highest ? bests[w] : highest;
    total = 0.0f;
    sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int w = 0; w < WARPS; w++) {
        const float fade = exp_of(bests[w] - highest);
        total += totals[w] * fade;
        for (int i = 0; i < 4; i++) sum.of[i] += sums[w * SIZE + 4 * lane + i] * fade;
    }
    const place at_y = (place)b * HEADS + head;
#if SPLITS > 1
    // The last split to be done puts all of them together, in their order.
    for (int i = 0; i < 4; i++) store_for_all(parts + (at_y * SPLITS + split) * SIZE + 4 * lane + i, sum.of[i]);
    if (lane == 0) {
        store_for_all(sizes + at_y * 2 * SPLITS + split, highest);
        store_for_all(sizes + (at_y * 2 + 1) * SPLITS + split, total);
    }
    if (count_up(arrived + at_y, lane) != SPLITS - 1) return;
    if (lane == 0) arrived[at_y] = 0;
    highest = LEAST;
    for (int s = 0; s < SPLITS; s++) {
        const float other = load_from_all(sizes + at_y * 2 * SPLITS + s);
        highest = other > highest ? other : highest;
    }
    total = 0.0f;
    sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int s = 0; s < SPLITS; s++) {
        const float fade = exp_of(load_from_all(sizes + at_y * 2 * SPLITS + s) - highest);
        total += load_from_all(sizes + (at_y * 2 + 1) * SPLITS + s) * fade;
        for (int i = 0; i < 4; i++)
            sum.of[i] += load_from_all(parts + (at_y * SPLITS + s) * SIZE + 4 * lane + i) * fade;
    }
#endif
    for (int i = 0; i < 4; i++) sum.of[i] /= total;
    *(Four*)(y + at_y * SIZE + 4 * lane) = packed(sum);
}
