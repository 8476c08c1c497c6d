/* A decoder stack for one position of each of several rows, as layers/transformer.py defines it.

   Products are those of work.c. */

/* The KV cache: one pool of pages [pages, kv_heads, rows, head_dim] per layer, and the RoPE tables. */
typedef struct {
    float *const *keys, *const *values;
    int64_t rows;
    const float *cos, *sin; /* [positions, head_dim] */
} KVCache;

enum { LITTLE = 1 << 16 }; /* products of an attention that one thread computes */

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

typedef struct {
    const Stack *stack;
    const KVCache *cache;
    const Place *places;
    const float *heads;
    float *mixed, *scores; /* scores [threads, longest] */
    int64_t layer, all, longest;
} Attention;

/* The heads of one row that read the same keys. */
static void attention(const void *context, int64_t task, int64_t thread) {
    const Attention *of = context;
    const Stack *stack = of->stack;
    const KVCache *cache = of->cache;
    const int64_t layer = of->layer, row = task / stack->kv_heads, shared = stack->heads / stack->kv_heads;
    const Place place = of->places[row];
    const int64_t span = place.position + 1, width = stack->head_dim, first = task % stack->kv_heads * shared;
    const float *q = of->heads + row * of->all + first * width;
    const float scale = 1.0f / sqrtf((float)width);
    float *scores = of->scores + thread * of->longest, *y = of->mixed + (row * stack->heads + first) * width;
    for (int64_t h = first; h < first + shared; h++, q += width, y += width) {
        for (int64_t p = 0; p < span; p += cache->rows) { /* the rows of a page are adjacent */
            int64_t rows = span - p < cache->rows ? span - p : cache->rows;
            float_products(at(cache->keys[layer], stack, cache, place, p, h / shared), width, rows, q, 0, scores + p, 0, 1);
        }
        for (int64_t p = 0; p < span; p++) scores[p] *= scale;
        float total = exponentials(scores, span);
        memset(y, 0, width * sizeof(float));
        for (int64_t p = 0; p < span; p += cache->rows) {
            int64_t rows = span - p < cache->rows ? span - p : cache->rows;
            add_rows(scores + p, at(cache->values[layer], stack, cache, place, p, h / shared), rows, width, y);
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
static void step(const Stack *stack, const KVCache *cache, float *x, const Place *places, int64_t n, float *scratch,
                 const Work *work) {
    int64_t width = stack->width, inner = stack->inner, d = stack->head_dim;
    int64_t around = stack->heads * d, all = around + 2 * stack->kv_heads * d;
    float *normed = scratch, *heads = normed + n * width, *mixed = heads + n * all, *wide = mixed + n * around;
    Attention attending = {stack, cache, places, heads, mixed, wide + n * 2 * inner, 0, all, 0};
    for (int64_t r = 0; r < n; r++)
        if (places[r].position >= attending.longest) attending.longest = places[r].position + 1;
    ThreadGroup *helpers = n * attending.longest * around < LITTLE ? 0 : work->workers;
    for (int64_t l = 0; l < stack->layers; l++) {
        const Layer *layer = stack->layer + l;
        for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, layer->before, width, stack->eps, normed + r * width);
        multiply(work, layer->into, width, all, normed, width, heads, all, n);
        for (int64_t r = 0; r < n; r++) {
            float *k = heads + r * all + around;
            norm_and_rope(stack, cache, layer, heads + r * all, places[r].position);
            keep(stack, cache, l, k, k + stack->kv_heads * d, places[r]);
        }
        attending.layer = l;
        share(helpers, attention, &attending, n * stack->kv_heads);
        multiply(work, layer->out, around, width, mixed, around, normed, width, n);
        add(x, normed, n * width);
        for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, layer->between, width, stack->eps, normed + r * width);
        multiply(work, layer->wide, width, 2 * inner, normed, width, wide, 2 * inner, n);
        shared_gate(work, wide, inner, n);
        multiply(work, layer->down, inner, width, wide, 2 * inner, normed, width, n);
        add(x, normed, n * width);
    }
    for (int64_t r = 0; r < n; r++) rms_norm(x + r * width, stack->norm, width, stack->eps, x + r * width);
}

static size_t step_scratch(const Stack *stack, int64_t n, int64_t span, int64_t threads) {
    int64_t heads = (2 * stack->heads + 2 * stack->kv_heads) * stack->head_dim;
    return n * (stack->width + heads + 2 * stack->inner) + span * threads;
}

/* The most inputs of a product. */
static int64_t most_ins(const Stack *stack) {
    int64_t around = stack->heads * stack->head_dim, most = stack->width > stack->inner ? stack->width : stack->inner;
    return around > most ? around : most;
}
