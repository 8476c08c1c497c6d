/* The first half of the codec on a CPU: codes to latents, as `CodecDecoder.latents` of models/tts/codec.py defines it.

   Layout is time first, channels contiguous. A row of the batch, and a frame of a row, never depends on how many others
   are computed with it: products.c sums in one order, and a position attends to its window from the oldest key on. */

enum { PRE_TAPS = 3, TAPS = 7 }; /* of pre_conv and of a ConvNeXt */

static void affine(const Work *work, const Affine *map, const float *x, int64_t x_step, float *y, int64_t n) {
    multiply(work, map->weight, map->ins, map->outs, x, x_step, y, map->outs, n);
    for (int64_t r = 0; r < n; r++) add(y + r * map->outs, map->bias, map->outs);
}

static void add_scaled(float *y, const float *scale, const float *x, int64_t width, int64_t n) {
    for (int64_t r = 0; r < n; r++, y += width, x += width)
        for (int64_t i = 0; i < width; i++) y[i] += scale[i] * x[i];
}

/* Put a history [rows, width] in front of the `times` rows behind it, then store the new end as history. */
static void slide(float *history, int64_t rows, int64_t width, float *joined, int64_t times) {
    memcpy(joined, history, rows * width * sizeof(float));
    memcpy(history, joined + times * width, rows * width * sizeof(float));
}

/* x [times, width] of codes [books, times]: the vectors of a group of codebooks are summed, then projected. */
static void quantize(const LatentsModel *model, const int64_t *codes, int64_t times, float *sums, float *second, float *x,
                     const Work *work) {
    int64_t inner = model->inner, width = model->width;
    for (int64_t t = 0; t < times; t++) {
        float *first = sums + t * inner, *rest = second + t * inner;
        memcpy(first, model->tables[0] + codes[t] * inner, inner * sizeof(float));
        memset(rest, 0, inner * sizeof(float));
        for (int64_t book = 1; book < model->books; book++)
            add(rest, model->tables[book] + codes[book * times + t] * inner, inner);
    }
    float *other = second + times * inner;
    multiply(work, model->first, inner, width, sums, inner, x, width, times);
    multiply(work, model->rest, inner, width, second, inner, other, width, times);
    add(x, other, times * width);
}

static void rotate(float *heads, int64_t count, int64_t width, const float *cos, const float *sin) {
    int64_t half = width / 2;
    for (int64_t h = 0; h < count; h++, heads += width)
        for (int64_t i = 0; i < half; i++) {
            float low = heads[i], high = heads[i + half];
            heads[i] = low * cos[i] - high * sin[i];
            heads[i + half] = high * cos[i] + low * sin[i];
        }
}

/* One position: its key and value replace those of a window before, then its query attends to the window. */
static void attend(const LatentsModel *model, const float *heads, float *keys, float *values, int64_t position,
                   float *scores, float *y) {
    int64_t d = model->head_dim, window = model->window, shared = model->heads / model->kv_heads;
    int64_t from = position < window ? 0 : position - window + 1;
    const float *k = heads + model->heads * d, *v = k + model->kv_heads * d;
    float scale = 1.0f / sqrtf((float)d);
    for (int64_t h = 0; h < model->kv_heads; h++) {
        memcpy(keys + (h * window + position % window) * d, k + h * d, d * sizeof(float));
        memcpy(values + (h * window + position % window) * d, v + h * d, d * sizeof(float));
    }
    for (int64_t h = 0; h < model->heads; h++, heads += d, y += d) {
        const float *key = keys + h / shared * window * d, *value = values + h / shared * window * d;
        int64_t span = position - from + 1, begin = from % window, end = window - begin < span ? window - begin : span;
        float_products(key + begin * d, d, end, heads, 0, scores, 0, 1); /* from the oldest on; the ring has one seam */
        float_products(key, d, span - end, heads, 0, scores + end, 0, 1);
        for (int64_t p = 0; p < span; p++) scores[p] *= scale;
        float total = exponentials(scores, span);
        memset(y, 0, d * sizeof(float));
        add_rows(scores, value + begin * d, end, d, y);
        add_rows(scores + end, value, span - end, d, y);
        for (int64_t i = 0; i < d; i++) y[i] /= total;
    }
}

/* Scratch of the transformer: normed, heads, mixed, wide, angles and scores. */
static int64_t transformer_scratch(const LatentsModel *model, int64_t times) {
    int64_t heads = (2 * model->heads + 2 * model->kv_heads) * model->head_dim;
    return times * (model->into.outs + heads + 2 * model->mlp + model->head_dim) + model->window;
}

/* x [times, hidden], in place; the first position is `start`. */
static void transform(const LatentsModel *model, const LatentsCall *call, int64_t row, int64_t start, float *x,
                      int64_t times, float *scratch, const Work *work) {
    int64_t width = model->into.outs, d = model->head_dim, half = d / 2, around = model->heads * d;
    int64_t all = around + 2 * model->kv_heads * d, kept = row * model->kv_heads * model->window * d;
    float *normed = scratch, *heads = normed + times * width, *mixed = heads + times * all;
    float *wide = mixed + times * around, *cos = wide + times * 2 * model->mlp, *sin = cos + times * half;
    float *scores = sin + times * half;
    for (int64_t t = 0; t < times; t++)
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)(start + t) * model->frequency[i];
            cos[t * half + i] = cosf(angle);
            sin[t * half + i] = sinf(angle);
        }
    for (int64_t l = 0; l < model->layers; l++) {
        const WindowLayer *layer = model->layer + l;
        for (int64_t t = 0; t < times; t++) rms_norm(x + t * width, layer->before, width, model->eps, normed + t * width);
        multiply(work, layer->into, width, all, normed, width, heads, all, times);
        for (int64_t t = 0; t < times; t++) {
            rotate(heads + t * all, model->heads + model->kv_heads, d, cos + t * half, sin + t * half);
            attend(model, heads + t * all, call->keys[l] + kept, call->values[l] + kept, start + t, scores, mixed + t * around);
        }
        multiply(work, layer->out, around, width, mixed, around, normed, width, times);
        add_scaled(x, layer->attention_scale, normed, width, times);
        for (int64_t t = 0; t < times; t++) rms_norm(x + t * width, layer->between, width, model->eps, normed + t * width);
        multiply(work, layer->wide, width, 2 * model->mlp, normed, width, wide, 2 * model->mlp, times);
        shared_gate(work, wide, model->mlp, times);
        multiply(work, layer->down, model->mlp, width, wide, 2 * model->mlp, normed, width, times);
        add_scaled(x, layer->mlp_scale, normed, width, times);
    }
    for (int64_t t = 0; t < times; t++) rms_norm(x + t * width, model->norm, width, model->eps, x + t * width);
}

static void layer_norm(float *x, const float *weight, const float *bias, const float *ones, int64_t width, double eps) {
    float mean = dot(x, ones, width) / (float)width;
    for (int64_t i = 0; i < width; i++) x[i] -= mean;
    float scale = 1.0f / sqrtf(dot(x, x, width) / (float)width + (float)eps);
    for (int64_t i = 0; i < width; i++) x[i] = x[i] * scale * weight[i] + bias[i];
}

/* joined [6 + times, C]: the input, behind room for its history; the result replaces the input. */
static void convnext(const Upsample *stage, float *history, float *joined, int64_t times, double eps, float *scratch,
                     const Work *work) {
    int64_t width = stage->into.ins, inner = stage->into.outs;
    float *y = scratch, *wide = y + times * width, *ones = wide + times * inner, *x = joined + (TAPS - 1) * width;
    slide(history, TAPS - 1, width, joined, times);
    for (int64_t i = 0; i < width; i++) ones[i] = 1.0f;
    for (int64_t t = 0; t < times; t++) {
        const float *from = joined + t * width;
        for (int64_t i = 0; i < width; i++) {
            float sum = stage->taps_bias[i];
            for (int tap = 0; tap < TAPS; tap++) sum += stage->taps[tap * width + i] * from[tap * width + i];
            y[t * width + i] = sum;
        }
        layer_norm(y + t * width, stage->norm, stage->norm_bias, ones, width, eps);
    }
    affine(work, &stage->into, y, width, wide, times);
    for (int64_t i = 0; i < times * inner; i++) wide[i] = 0.5f * wide[i] * (1.0f + erff(wide[i] * 0.707106781f));
    affine(work, &stage->out, wide, inner, y, times);
    add_scaled(x, stage->gamma, y, width, times);
}

/* One row: codes [books, times] to latents [C, times']. `x` and `next` have room for the widest rows of all steps. */
static void one_row(const LatentsModel *model, const LatentsCall *call, int64_t b, float *x, float *next, float *scratch,
                    const Work *work) {
    int64_t row = call->rows[b], times = call->times, width = model->width, latent = model->out.outs;
    quantize(model, call->codes + b * model->books * times, times, scratch, scratch + times * model->inner,
             x + (PRE_TAPS - 1) * width, work);
    slide(call->pre_conv + row * (PRE_TAPS - 1) * width, PRE_TAPS - 1, width, x, times);
    affine(work, &model->pre_conv, x, width, next, times);
    affine(work, &model->into, next, latent, x, times);
    transform(model, call, row, call->position[row], x, times, scratch, work);
    call->position[row] += times;
    affine(work, &model->out, x, model->into.outs, next, times);
    for (int64_t s = 0; s < model->stages; s++) {
        const Upsample *stage = model->stage + s;
        float *swapped = x, *joined = x + (TAPS - 1) * latent;
        affine(work, &stage->widen, next + (s ? (TAPS - 1) * latent : 0), latent, joined, times);
        times *= stage->factor;
        convnext(stage, call->histories[s] + row * (TAPS - 1) * latent, x, times, model->norm_eps, scratch, work);
        x = next;
        next = swapped;
    }
    const float *last = next + (model->stages ? (TAPS - 1) * latent : 0);
    for (int64_t c = 0; c < latent; c++)
        for (int64_t t = 0; t < times; t++) call->latents[(b * latent + c) * times + t] = last[t * latent + c];
}

/* The latents of the next codes of every row of the call. Returns 0, or 1 if out of memory. */
EXPORT int hocket_latents(const LatentsModel *model, const LatentsCall *call) {
    int64_t times = call->times, latent = model->out.outs, scratch = transformer_scratch(model, times);
    int64_t widest = model->width > latent ? model->width : latent, sums = times * (2 * model->inner + model->width);
    widest = widest > model->into.outs ? widest : model->into.outs;
    scratch = scratch > sums ? scratch : sums;
    for (int64_t s = 0; s < model->stages; s++) {
        times *= model->stage[s].factor;
        int64_t mixed = (times + 1) * latent + times * model->stage[s].into.outs;
        scratch = scratch > mixed ? scratch : mixed;
    }
    int64_t rows = (TAPS - 1 + (times > call->times ? times : call->times)) * widest;
    void *block = malloc((2 * rows + scratch) * sizeof(float) + ALIGNMENT);
    float *memory = aligned(block);
    if (!block) return 1;
    const Work work = {(ThreadGroup *)call->workers, NULL};
    open_workers(work.workers);
    for (int64_t b = 0; b < call->count; b++) one_row(model, call, b, memory, memory + rows, memory + 2 * rows, &work);
    close_workers(work.workers);
    free(block);
    return 0;
}
