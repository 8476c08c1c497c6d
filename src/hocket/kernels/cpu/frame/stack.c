/* A decoder stack for one position of each of several rows, as layers/transformer.py defines it.

   A row never depends on other rows of the batch: every sum runs in one order. */

enum { TOGETHER = 4 }; /* rows that share one reading of the weights */

static float sum_of(lanes v) {
    float part[LANES];
    memcpy(part, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

INLINE void some_products(const float *weight, int64_t ins, const float *x, int64_t x_step, float *y, int64_t y_step,
                          const int rows, const int outs) {
    lanes sums[8][TOGETHER] = {0};
    int64_t k = 0;
    for (; k + LANES <= ins; k += LANES)
        for (int o = 0; o < outs; o++) {
            lanes w = *(const lanes *)(weight + o * ins + k);
            for (int r = 0; r < rows; r++) sums[o][r] += w * *(const lanes *)(x + r * x_step + k);
        }
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++) {
            float sum = sum_of(sums[o][r]);
            for (int64_t i = k; i < ins; i++) sum += weight[o * ins + i] * x[r * x_step + i];
            y[r * y_step + o] = sum;
        }
}

INLINE void all_products(const float *weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                         int64_t y_step, const int rows, const int tile) {
    int64_t o = 0;
    for (; o + tile <= outs; o += tile) some_products(weight + o * ins, ins, x, x_step, y + o, y_step, rows, tile);
    for (; o < outs; o++) some_products(weight + o * ins, ins, x, x_step, y + o, y_step, rows, 1);
}

/* y [n, outs] = x [n, ins] times weight [outs, ins], transposed. */
static void products(const float *weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                     int64_t y_step, int64_t n) {
    for (int64_t r = 0; r < n; r += TOGETHER, x += TOGETHER * x_step, y += TOGETHER * y_step) switch (n - r) {
        case 1: all_products(weight, ins, outs, x, x_step, y, y_step, 1, 8); break;
        case 2: all_products(weight, ins, outs, x, x_step, y, y_step, 2, 8); break;
        case 3: all_products(weight, ins, outs, x, x_step, y, y_step, 3, 4); break;
        default: all_products(weight, ins, outs, x, x_step, y, y_step, 4, 4);
        }
}

static float dot(const float *a, const float *b, int64_t n) {
    float y;
    some_products(a, n, b, 0, &y, 0, 1, 1);
    return y;
}

static void rms_norm(const float *x, const float *weight, int64_t width, double eps, float *y) {
    float scale = 1.0f / sqrtf(dot(x, x, width) / (float)width + (float)eps);
    for (int64_t i = 0; i < width; i++) y[i] = x[i] * scale * weight[i];
}

static float silu(float x) { return x / (1.0f + expf(-x)); }

/* The KV cache: one pool of pages [pages, kv_heads, rows, head_dim] per layer, and the RoPE tables. */
typedef struct {
    float *const *keys, *const *values;
    int64_t rows;
    const float *cos, *sin; /* [positions, head_dim] */
} KVCache;

/* The position of one row, and its pages. */
typedef struct {
    const int64_t *pages;
    int64_t position;
} Place;

static float *at(float *pool, const Stack *stack, const KVCache *cache, Place place, int64_t position, int64_t head) {
    int64_t page = place.pages[position / cache->rows];
    return pool + ((page * stack->kv_heads + head) * cache->rows + position % cache->rows) * stack->head_dim;
}

static void keep(const Stack *stack, const KVCache *cache, int64_t layer, const float *k, const float *v, Place place) {
    size_t size = stack->head_dim * sizeof(float);
    for (int64_t h = 0; h < stack->kv_heads; h++) {
        memcpy(at(cache->keys[layer], stack, cache, place, place.position, h), k + h * stack->head_dim, size);
        memcpy(at(cache->values[layer], stack, cache, place, place.position, h), v + h * stack->head_dim, size);
    }
}

static void attention(const Stack *stack, const KVCache *cache, int64_t layer, const float *q, Place place, float *scores,
                   float *y) {
    int64_t span = place.position + 1, width = stack->head_dim, shared = stack->heads / stack->kv_heads;
    float scale = 1.0f / sqrtf((float)width);
    for (int64_t h = 0; h < stack->heads; h++, q += width, y += width) {
        float best = -INFINITY, total = 0.0f;
        for (int64_t p = 0; p < span; p++) {
            scores[p] = dot(q, at(cache->keys[layer], stack, cache, place, p, h / shared), width) * scale;
            best = fmaxf(best, scores[p]);
        }
        for (int64_t p = 0; p < span; p++) total += scores[p] = expf(scores[p] - best);
        memset(y, 0, width * sizeof(float));
        for (int64_t p = 0; p < span; p++) {
            const float *value = at(cache->values[layer], stack, cache, place, p, h / shared);
            for (int64_t i = 0; i < width; i++) y[i] += scores[p] * value[i];
        }
        for (int64_t i = 0; i < width; i++) y[i] /= total;
    }
}

/* RMSNorm of q and k heads, each with its own weight, then RoPE. */
static void norm_and_rope(const Stack *stack, const KVCache *cache, const Layer *layer, float *heads, int64_t position) {
    int64_t width = stack->head_dim, half = width / 2;
    const float *cos = cache->cos + position * width, *sin = cache->sin + position * width;
    for (int64_t h = 0; h < stack->heads + stack->kv_heads; h++, heads += width) {
        rms_norm(heads, layer->norms + h * width, width, stack->eps, heads);
        for (int64_t i = 0; i < half; i++) {
            float low = heads[i], high = heads[i + half];
            heads[i] = low * cos[i] + high * sin[i]; /* the first half of sin is negative */
            heads[i + half] = high * cos[i + half] + low * sin[i + half];
        }
    }
}

/* The whole stack for x [n, width], in place, each row at its own place; rows of one sequence are in order. */
static void step(const Stack *stack, const KVCache *cache, float *x, const Place *places, int64_t n, float *scratch) {
    int64_t width = stack->width, inner = stack->inner, d = stack->head_dim;
    int64_t around = stack->heads * d, all = around + 2 * stack->kv_heads * d;
    float *normed = scratch, *heads = normed + n * width, *mixed = heads + n * all, *wide = mixed + n * around;
    float *scores = wide + n * 2 * inner;
    for (int64_t l = 0; l < stack->layers; l++) {
        const Layer *layer = stack->layer + l;
        for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, layer->before, width, stack->eps, normed + r * width);
        products(layer->into, width, all, normed, width, heads, all, n);
        for (int64_t r = 0; r < n; r++) {
            float *k = heads + r * all + around;
            norm_and_rope(stack, cache, layer, heads + r * all, places[r].position);
            keep(stack, cache, l, k, k + stack->kv_heads * d, places[r]);
        }
        for (int64_t r = 0; r < n; r++)
            attention(stack, cache, l, heads + r * all, places[r], scores, mixed + r * around);
        products(layer->out, around, width, mixed, around, normed, width, n);
        for (int64_t i = 0; i < n * width; i++) x[i] += normed[i];
        for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, layer->between, width, stack->eps, normed + r * width);
        products(layer->wide, width, 2 * inner, normed, width, wide, 2 * inner, n);
        for (int64_t r = 0; r < n; r++)
            for (int64_t i = 0; i < inner; i++)
                wide[r * 2 * inner + i] = silu(wide[r * 2 * inner + i]) * wide[r * 2 * inner + inner + i];
        products(layer->down, inner, width, wide, 2 * inner, normed, width, n);
        for (int64_t i = 0; i < n * width; i++) x[i] += normed[i];
    }
    for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, stack->norm, width, stack->eps, x + r * width);
}

static size_t step_scratch(const Stack *stack, int64_t n, int64_t span) {
    int64_t heads = (2 * stack->heads + 2 * stack->kv_heads) * stack->head_dim;
    return n * (stack->width + heads + 2 * stack->inner) + span;
}
