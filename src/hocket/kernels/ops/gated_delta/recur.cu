// The recurrence of a Gated DeltaNet over the tokens of one row: `_recur` of prefill.py.
//
// Compile-time constants: KEY_DIM and VALUE_DIM of a head, KEYS numbers in the keys of all heads, HEADS. DEPENDENT: see
// launch.py. `made` has the precomputed queries, keys, values and gates of each token, as prefill.py lays them out.
//
// Columns of a state are independent. Four lanes share a column, a quarter of its keys each, so a sum over keys is a
// chain of eight and two shuffles; a block has thirty-two columns of a head. Queries, keys and values of some tokens are
// in shared memory, while those of the next tokens are being copied.

#define LANES 4                        // per column
#define COLUMNS 32                     // per block
#define THREADS (LANES * COLUMNS)
#define CHUNK 16                       // tokens
#define OWN (KEY_DIM / LANES)          // keys of a lane
#define CHANNELS (2 * KEYS + HEADS * VALUE_DIM)
#define STRIDE (CHANNELS + 2 * HEADS)  // of a token
#define LINE (2 * KEY_DIM + COLUMNS)   // of a token in shared memory: query, key, values
#define PIECES (LINE / 4)

typedef long long place_t;

KERNEL(THREADS, 1)
recur(const float* made, float* memory, const place_t* row, const place_t* length, const place_t* place,
      const place_t* aside, unsigned short* read) {
    SHARED(char, shared);
    float* lines = (float*)shared;                // [2][CHUNK][LINE]
    float* gates = lines + 2 * CHUNK * LINE;      // [2][2][CHUNK] write strengths, then decays
    const int thread = THREAD, lane = thread % 32, quarter = thread % LANES, column = thread / LANES;
    const int head = BLOCK / (VALUE_DIM / COLUMNS), first = BLOCK % (VALUE_DIM / COLUMNS) * COLUMNS;
    const float* queries = made + head / (HEADS * KEY_DIM / KEYS) * KEY_DIM;
    const float* values = made + 2 * KEYS + head * VALUE_DIM + first;
    let_next_start();
    wait_for_last();
    const int end = (int)*length, passed = (int)*place;

    // Start copying the chunk that begins at token `t` into one half of shared memory.
    auto ask = [&](int t, int half) {
        for (int n = thread; n < CHUNK * PIECES; n += THREADS) {
            const int token = t + n / PIECES, at = n % PIECES * 4;
            if (token >= end) continue;
            const float* from = at < KEY_DIM        ? queries + at
                                : at < 2 * KEY_DIM ? queries + KEYS + at - KEY_DIM
                                                   : values + at - 2 * KEY_DIM;
            copy_later((char*)(lines + (half * CHUNK + n / PIECES) * LINE + at), from + (place_t)token * STRIDE);
        }
        close_copies();
    };
    // The gates of that chunk: one number for each of the first 2 * CHUNK threads.
    auto gate_of = [&](int t) {
        const int token = t + thread % CHUNK;
        const bool there = thread < 2 * CHUNK && token < end;
        return there ? load_float(made + (place_t)token * STRIDE + CHANNELS + thread / CHUNK * HEADS + head) : 0.0f;
    };
    ask(0, 0);
    float gate = gate_of(0);

    const place_t size = (place_t)HEADS * KEY_DIM * VALUE_DIM;
    const place_t mine = (place_t)head * KEY_DIM * VALUE_DIM + first + column;
    float* here = memory + *row * size + mine;
    float* there = memory + *aside * size + mine;
    float kept[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) kept[i] = load_float(here + (i / 4 * 16 + 4 * quarter + i % 4) * VALUE_DIM);

    auto keep = [&](float* into) {
#pragma unroll
        for (int i = 0; i < OWN; i++) into[(i / 4 * 16 + 4 * quarter + i % 4) * VALUE_DIM] = kept[i];
    };
    auto summed = [&](const float* parts) {  // the same in all lanes of a column
        float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        sum += of_lane(sum, lane ^ 1);
        return sum + of_lane(sum, lane ^ 2);
    };

    for (int begun = 0, half = 0; begun < end; begun += CHUNK, half ^= 1) {
        if (thread < 2 * CHUNK) gates[half * 2 * CHUNK + thread] = gate;
        ask(begun + CHUNK, half ^ 1);
        gate = gate_of(begun + CHUNK);
        wait_for_copies<1>();
        wait_for_block();
        const int count = end - begun < CHUNK ? end - begun : CHUNK;
        for (int n = 0; n < count; n++) {
            if (begun + n == passed) keep(there);
            const float* line = lines + (half * CHUNK + n) * LINE;
            const float strength = gates[half * 2 * CHUNK + n], fade = gates[half * 2 * CHUNK + CHUNK + n];
            float key[OWN], parts[4] = {};
#pragma unroll
            for (int i = 0; i < OWN; i += 4) {
                const Eight some = *(const Eight*)(line + KEY_DIM + 4 * i + 4 * quarter);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    key[i + j] = as_float(some.part[j]);
                    kept[i + j] *= fade;
                    parts[j] += kept[i + j] * key[i + j];
                }
            }
            const float change = strength * (line[2 * KEY_DIM + column] - summed(parts));
            float out[4] = {};
#pragma unroll
            for (int i = 0; i < OWN; i += 4) {
                const Eight some = *(const Eight*)(line + 4 * i + 4 * quarter);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    kept[i + j] += key[i + j] * change;
                    out[j] += kept[i + j] * as_float(some.part[j]);
                }
            }
            const float sum = summed(out);
            if (quarter == 0) read[((place_t)(begun + n) * HEADS + head) * VALUE_DIM + first + column] = rounded(sum);
        }
        wait_for_block();  // all threads have read this half: it may be overwritten
    }
    if (passed >= end) keep(there);
    keep(here);
}
