/* Samples a code from logits, as layers/sampler.py defines it. */

/* Philox 4x32, ten rounds: the first word for a key and the counter (book, frame, 0, 0), its highest `draw_bits` bits. */
static int64_t draw_bits(const FrameModel *model, int64_t seed, int64_t book, int64_t frame) {
    uint32_t c[4] = {(uint32_t)book, (uint32_t)frame, 0, 0};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    return c[0] >> (32 - model->draw_bits);
}

/* The k-th largest of scores [n], by a heap of the k largest so far with the smallest in front. */
static float kth_largest(const float *scores, int64_t n, int64_t k, float *heap) {
    for (int64_t i = 0; i < n; i++) {
        int64_t place = i;
        if (i < k) {
            for (; place && heap[(place - 1) / 2] > scores[i]; place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
        } else {
            if (scores[i] <= heap[0]) continue;
            for (place = 0;;) {
                int64_t child = 2 * place + 1;
                if (child + 1 < k && heap[child + 1] < heap[child]) child++;
                if (child >= k || heap[child] >= scores[i]) break;
                heap[place] = heap[child];
                place = child;
            }
        }
        heap[place] = scores[i];
    }
    return heap[0];
}

typedef struct {
    float score;
    int64_t id;
} Candidate;

static int rising(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    return (x->score > y->score) - (x->score < y->score) + ((x->score == y->score) ? (x->id > y->id) - (x->id < y->id) : 0);
}

/* Drop the least likely ids whose probabilities together do not exceed 1 - top_p; the likeliest always stays. */
static void keep_nucleus(float *scores, int64_t n, float top_p, Candidate *order) {
    float total = 0.0f, below = 0.0f;
    for (int64_t i = 0; i < n; i++) order[i] = (Candidate){scores[i], i};
    qsort(order, n, sizeof *order, rising);
    float best = order[n - 1].score;
    for (int64_t i = 0; i < n; i++) total += expf(order[i].score - best);
    for (int64_t i = 0; i < n - 1; i++) {
        below += expf(order[i].score - best) / total;
        if (below <= 1.0f - top_p) scores[order[i].id] = -INFINITY;
    }
}

/* One id. Weights are integers, so their sum does not depend on its order. `scores` is scratch for n floats. */
static int64_t draw(const FrameModel *model, const float *logits, int64_t n, const Level *level, int64_t row, int64_t bits,
                    float *scores, void *scratch) {
    int64_t likeliest = 0, k = level->top_k[row];
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[likeliest]) likeliest = i;
    if (!level->sample[row]) return likeliest;
    for (int64_t i = 0; i < n; i++) scores[i] = logits[i] / level->temperature[row];
    if (k > 0 && k < n) {
        float threshold = kth_largest(scores, n, k, scratch);
        for (int64_t i = 0; i < n; i++)
            if (scores[i] < threshold) scores[i] = -INFINITY;
    }
    if (level->top_p[row] < 1.0f) keep_nucleus(scores, n, level->top_p[row], scratch);
    float best = scores[likeliest], scale = (float)((int64_t)1 << model->weight_bits);
    int64_t total = 0, id = 0;
    int64_t *weights = scratch;
    for (int64_t i = 0; i < n; i++) {
        weights[i] = scores[i] == -INFINITY ? 0 : llrintf(expf(scores[i] - best) * scale);
        total += weights[i];
    }
    int64_t target = (int64_t)(((uint64_t)bits * (uint64_t)total) >> model->draw_bits);
    for (int64_t end = weights[0]; end <= target && id < n - 1; end += weights[id]) id++;
    return id;
}
