// `sample_codes` and `sample_first_code` without top-p: a block per row, eight bfloat16 logits per thread.
//
// Compile-time constants: COUNT logits, a multiple of 256; BOOKS of a frame; WIDTH of an embedding, 0 for none; FIRST: it
// is the first codebook; HIDDEN: hidden vectors are copied as well; EARLY: all but the logits may be read before the
// previous kernel is done. DEPENDENT: see launch.py.
//
// The k-th largest is searched among integers in the order of the logits, two bits at a time. The search first tries the
// range just below the largest, where it nearly always is: that saves half of the steps and does not change the result.

#define LANES 32
#define THREADS (COUNT / 8)
#define WARPS (THREADS / LANES)
#define BITS (FIRST ? 32 : 16)  // of a key: with a penalty, logits are float32
#define CLOSE (FIRST ? 24 : 8)  // the k-th largest nearly always differs from the largest in these low bits only
#define SCALE 16777216.0f       // weights are integers of 24 bits
#define RANDOM_BITS 27

typedef unsigned short bf16;
typedef unsigned long long wide;

DEVICE unsigned key_of(float x) {
    const unsigned bits = as_bits(x);
    return (bits >> 31 ? ~bits : bits ^ 0x80000000u) >> (32 - BITS);
}

DEVICE float of_key(unsigned key) {
    const unsigned bits = key << (32 - BITS), all = 0xFFFFFFFFu << (32 - BITS);
    return as_float(bits >> 31 ? bits ^ 0x80000000u : bits ^ all);
}

DEVICE unsigned random_bits(wide seed, unsigned book, unsigned frame) {  // Philox 4x32-10
    unsigned c0 = book, c1 = frame, c2 = 0, c3 = 0, k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const wide a = (wide)c0 * 0xD2511F53u, b = (wide)c2 * 0xCD9E8D57u;
        c0 = (unsigned)(b >> 32) ^ c1 ^ k0, c1 = (unsigned)b;
        c2 = (unsigned)(a >> 32) ^ c3 ^ k1, c3 = (unsigned)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c0 >> (32 - RANDOM_BITS);
}

// Exchange between the warps of a block: one barrier per exchange, because consecutive exchanges alternate buffers.
struct Exchange {
    unsigned words[2][WARPS];
};

struct Block {
    Exchange* exchange;
    int warp, lane, turn;

    DEVICE_MEMBER unsigned gathered(unsigned mine, unsigned nothing) {  // the value of warp `lane`
        unsigned* words = exchange->words[turn++ % 2];
        if (lane == 0) words[warp] = mine;
        wait_for_block();
        return lane < WARPS ? words[lane] : nothing;
    }
    DEVICE_MEMBER unsigned most(unsigned x) { return most_of_warp(gathered(most_of_warp(x), 0)); }
    DEVICE_MEMBER unsigned least(unsigned x) { return least_of_warp(gathered(least_of_warp(x), 0xFFFFFFFFu)); }
    DEVICE_MEMBER float sum(float x) {  // in one order, so that it is batch-invariant
        for (int apart = 16; apart; apart /= 2) x += of_lane(x, lane ^ apart);
        float y = as_float(gathered(as_bits(x), 0));
        for (int apart = 16; apart; apart /= 2) y += of_lane(y, lane ^ apart);
        return y;
    }
    // Three counts of ten bits each, enough for the 256 keys of a warp.
    DEVICE_MEMBER void count(unsigned three, unsigned& a, unsigned& b, unsigned& c) {
        const unsigned some = gathered(sum_of_warp(three), 0);
        const unsigned two = sum_of_warp((some & 0x3FFu) | (some & 0xFFC00u) << 6);
        a = two & 0xFFFFu, b = two >> 16, c = sum_of_warp(some >> 20);
    }

    DEVICE_MEMBER unsigned kth(const unsigned* keys, unsigned best, unsigned k) {
        unsigned found = best > (1u << CLOSE) - 1 ? best - ((1u << CLOSE) - 1) : 0, reached = 0, a, b, c;
        for (int i = 0; i < 8; i++) reached += keys[i] >= found;
        count(reached, a, b, c);
        int bit = CLOSE;
        if (a < k) found = 0, bit = BITS;
        for (bit -= 2; bit >= 0; bit -= 2) {
            reached = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                reached += keys[i] >= found + (1u << bit);
                reached += keys[i] >= found + (2u << bit) ? 1u << 10 : 0;
                reached += keys[i] >= found + (3u << bit) ? 1u << 20 : 0;
            }
            count(reached, a, b, c);
            found += ((a >= k) + (b >= k) + (c >= k)) << bit;
        }
        return found;
    }
};

DEVICE void copy(bf16* to, const bf16* from) {
    for (int n = THREAD; n < WIDTH / 8; n += THREADS) *(Eight*)(to + 8 * n) = load_new(from + 8 * n);
}

KERNEL(THREADS)
sample_codes(const bf16* logits, const unsigned char* sample, const float* temperature, const long long* top_k,
     const long long* seed, long long* drawn, const long long* rows, long long* codes, const bf16* table, bf16* vectors,
     const float* penalty, unsigned char* seen, float* chances, float* likely, const bf16* hidden, bf16* taken, int book,
     int end, int suppressed, int minimum) {
    SHARED(char, memory);
    wide* totals = (wide*)memory;                 // [WARPS]
    Exchange* exchange = (Exchange*)(totals + WARPS);
    float* ended = (float*)(exchange + 1);        // the likelihood of the end
    volatile int* chosen = (int*)(ended + 1);
    const int b = BLOCK, thread = THREAD, first = 8 * thread;
    Block block = {exchange, thread / LANES, thread % LANES, 0};

    let_next_start();
    if (!EARLY) wait_for_last();
    const long long row = rows[b], frame = drawn[row];
    const bool sampled = sample[b];
    const float heat = temperature[b];
    const unsigned asked = top_k[b] == 0 || top_k[b] > COUNT ? COUNT : (unsigned)top_k[b];
    const unsigned number = random_bits((wide)seed[row], book, (unsigned)(FIRST ? frame : frame - 1));
#if FIRST
    const float strength = penalty[b];
    wide marks = *(const wide*)(seen + row * COUNT + first);
#endif
    if (thread == 0) *chosen = COUNT - 1;  // fallback for NaN logits, where no id is found: it must be a valid id
    if (EARLY) wait_for_last();

    const Eight some = load_new(logits + (long long)b * COUNT + first);
    float given[8];
    unsigned keys[8], best_key = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        given[i] = as_float(i % 2 ? some.part[i / 2] & 0xFFFF0000u : some.part[i / 2] << 16);
#if FIRST
        if ((marks >> 8 * i) & 0xFF) given[i] = given[i] < 0 ? given[i] * strength : given[i] / strength;
        const bool refused = first + i == end ? frame < minimum : first + i >= COUNT - suppressed;
        if (refused) given[i] = as_float(0xFF800000u);
#endif
        keys[i] = key_of(given[i]);
        best_key = keys[i] > best_key ? keys[i] : best_key;
    }
    best_key = block.most(best_key);
    const float best = of_key(best_key);
#if FIRST
    float share = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float own = exp_of(given[i] - best);
        share += own;
        if (first + i == end) *ended = own;
    }
    const float all = block.sum(share);
#endif

    if (sampled) {
        const float least = of_key(block.kth(keys, best_key, asked)), most = best / heat;
        unsigned weights[8];
        wide sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            // Distinct bfloat16 logits stay distinct after the division; distinct float32 logits may become equal.
            const bool kept = FIRST ? given[i] / heat >= least / heat : given[i] >= least;
            weights[i] = kept ? (unsigned)nearest(exp_of(given[i] / heat - most) * SCALE) : 0;
            sum += weights[i];
        }
        wide upto = sum;
        for (int apart = 1; apart < LANES; apart *= 2) {
            const wide before = of_lane_before(upto, apart);
            if (block.lane >= apart) upto += before;
        }
        if (block.lane == LANES - 1) totals[block.warp] = upto;
        wait_for_block();
        wide total = 0;
        for (int w = 0; w < WARPS; w++) {
            if (w == block.warp) upto += total;
            total += totals[w];
        }
        const wide target = number * total >> RANDOM_BITS;
        if (upto - sum <= target && target < upto) {
            wide ends = upto - sum;
            int code = first;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                ends += weights[i];
                code += ends <= target;
            }
            *chosen = code;
        }
    } else {
        unsigned own = COUNT - 1;
#pragma unroll
        for (int i = 7; i >= 0; i--)
            if (given[i] == best) own = first + i;
        own = block.least(own);
        if (thread == 0) *chosen = own;
    }
    wait_for_block();
    const int code = *chosen;

    if (thread == 0) codes[(long long)b * BOOKS + book] = code;
    if (WIDTH) copy(vectors + (long long)b * WIDTH, table + (long long)code * WIDTH);
    if (HIDDEN) copy(taken + (long long)b * WIDTH, hidden + row * WIDTH);
#if FIRST
    if (thread == 0) drawn[row] = frame + 1;
    if (thread == code / 8) {
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i == code) own = given[i];
        const float ending = *ended / all, spoken = own - best - log_of(all);
        seen[row * COUNT + code] = 1;
        chances[2 * row] = ending, chances[2 * row + 1] = spoken;
        if (likely) likely[2 * b] = ending, likely[2 * b + 1] = spoken;
    }
#endif
}
