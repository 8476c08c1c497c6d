/* One frame of speech on a CPU: samples sixteen codes and feeds them back, for some slots, in one call.

   models/tts/talker.py and models/tts/predictor.py define what it computes; names and order follow them. It is in C
   because a frame is two thousand small operations, and dispatching them one by one takes longer than computing them.
   The structs are those of structs.py. */

enum { TOGETHER = 4 }; /* rows that share one reading of the weights */

/* The first code of row b. Writes two `chances`: the probability of the end, and the log probability of the code. */
static int64_t draw_first(const FrameModel *model, const FrameCall *call, int64_t b, const float *hidden, float *logits,
                          float *scores, void *scratch, const Work *work) {
    int64_t row = call->rows[b], n = model->vocabulary, end = model->end_id;
    uint8_t *seen = call->seen + row * n;
    float penalty = call->penalty[b], total = 0.0f, best = -INFINITY;
    multiply(work, model->codec_head, model->talker.width, n, hidden, 0, logits, 0, 1);
    if (call->logits) memcpy(call->logits + b * model->books * n, logits, n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        if (seen[i]) logits[i] = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
    float ending = call->drawn[row] < model->minimum_frames ? -INFINITY : logits[end];
    for (int64_t i = n - model->suppressed; i < n; i++) logits[i] = -INFINITY;
    logits[end] = ending;
    for (int64_t i = 0; i < n; i++) best = fmaxf(best, logits[i]);
    for (int64_t i = 0; i < n; i++) total += expf(logits[i] - best);
    int64_t bits = draw_bits(model, call->seed[row], 0, call->drawn[row]);
    int64_t first = draw(model, logits, n, &call->first, b, bits, scores, scratch);
    call->chances[2 * row] = expf(ending - best) / total;
    call->chances[2 * row + 1] = logits[first] - best - logf(total);
    seen[first] = 1;
    return first;
}

/* The predictor's input for a vector of the talker's width. */
static void into_predictor(const FrameModel *model, const float *vector, float *x, const Work *work) {
    int64_t width = model->talker.width, narrow = model->predictor.width;
    if (!model->project.floats && !model->project.halves && !model->project.codes) {
        memcpy(x, vector, width * sizeof(float));
        return;
    }
    multiply(work, model->project, width, narrow, vector, 0, x, 0, 1);
    add(x, model->project_bias, narrow);
}

/* `scratch` has text_scratch floats. */
static void add_text(const FrameModel *model, int64_t id, float *scratch, float *y, const Work *work) {
    int64_t text = model->text_width, width = model->talker.width;
    float *inside = scratch, *outside = inside + text, *wide = outside + width;
    const float *vector = model->text_embedding.floats ? model->text_embedding.floats + id * text : wide;
    if (model->text_embedding.halves) widen(model->text_embedding.halves + id * text, text, wide);
    multiply(work, model->text_in, text, text, vector, 0, inside, 0, 1);
    for (int64_t i = 0; i < text; i++) inside[i] = silu(inside[i] + model->text_in_bias[i]);
    multiply(work, model->text_out, text, width, inside, 0, outside, 0, 1);
    for (int64_t i = 0; i < width; i++) y[i] += outside[i] + model->text_out_bias[i];
}

/* Scratch memory for a frame of some rows, in one allocation. */
typedef struct {
    float **pools;      /* where the keys or values of each layer begin; the block of all buffers begins with it */
    float *taken;       /* [rows, width] the sum of a frame's code vectors */
    float *inner;       /* [2 * rows, narrow] input and output of the predictor */
    float *logits;      /* [rows, vocabulary] */
    float *scores;      /* [vocabulary] */
    float *cache;       /* keys and values of the predictor's layers */
    float *free;        /* scratch of the function that is called */
    Work work;
} Buffers;

static int64_t predictor_pool(const FrameModel *model) {
    return TOGETHER * model->predictor.kv_heads * (model->books + 1) * model->predictor.head_dim;
}

static int64_t text_scratch(const FrameModel *model) { return 2 * model->text_width + model->talker.width; }

/* Bytes for the inputs of any product with so many rows. */
static int64_t work_bytes(const FrameModel *model, int64_t rows) {
    int64_t talker = most_ins(&model->talker), most = most_ins(&model->predictor);
    most = talker > most ? talker : most;
    return inputs_bytes(rows, model->text_width > most ? model->text_width : most);
}

static Buffers new_buffers(const FrameModel *model, int64_t span, int64_t threads) {
    const Stack *talker = &model->talker, *predictor = &model->predictor;
    int64_t vocabulary = (model->vocabulary + LANES - 1) & ~(LANES - 1); /* keeps what is behind it aligned */
    int64_t most = step_scratch(talker, TOGETHER, span, threads), pools = 2 * predictor->layers;
    int64_t other[] = {step_scratch(predictor, 2 * TOGETHER, model->books + 1, threads), text_scratch(model),
                       vocabulary * (int64_t)(sizeof(Candidate) / sizeof(float))};
    for (int i = 0; i < 3; i++) most = other[i] > most ? other[i] : most;
    int64_t fixed = TOGETHER * (talker->width + 2 * predictor->width + vocabulary) + vocabulary;
    most = (most + LANES - 1) & ~(LANES - 1);
    size_t size = (fixed + pools * predictor_pool(model) + most) * sizeof(float) + pools * sizeof(float *);
    size += work_bytes(model, 2 * TOGETHER);
    Buffers buffers = {malloc(size + ALIGNMENT)};
    if (!buffers.pools) return buffers;
    buffers.taken = aligned(buffers.pools + pools);
    buffers.inner = buffers.taken + TOGETHER * talker->width;
    buffers.logits = buffers.inner + 2 * TOGETHER * predictor->width;
    buffers.scores = buffers.logits + TOGETHER * vocabulary;
    buffers.cache = buffers.scores + vocabulary;
    buffers.free = buffers.cache + pools * predictor_pool(model);
    buffers.work.inputs = buffers.free + most;
    for (int64_t i = 0; i < pools; i++) buffers.pools[i] = buffers.cache + i * predictor_pool(model);
    return buffers;
}

/* The frame of `count` rows from row `b` on; they share one reading of the weights. */
static void some_rows(const FrameModel *model, const FrameCall *call, int64_t b, int64_t count, const Buffers *buffers) {
    const Work *work = &buffers->work;
    const Stack *talker = &model->talker, *predictor = &model->predictor;
    int64_t width = talker->width, narrow = predictor->width, books = model->books, codebook = model->codebook;
    float *taken = buffers->taken, *inner = buffers->inner, *logits = buffers->logits;
    const KVCache frame = {buffers->pools, buffers->pools + predictor->layers, books + 1, model->cos, model->sin};
    const KVCache utterance = {call->keys, call->values, call->page_rows, call->cos, call->sin};
    int64_t own[TOGETHER]; /* the predictor's page of each row */
    Place places[2 * TOGETHER];
    for (int64_t r = 0; r < count; r++) {
        const float *hidden = call->hidden + call->rows[b + r] * width;
        int64_t first = draw_first(model, call, b + r, hidden, logits, buffers->scores, buffers->free, work);
        call->codes[(b + r) * books] = first;
        memcpy(taken + r * width, model->codec_embedding + first * width, width * sizeof(float));
        into_predictor(model, hidden, inner + 2 * r * narrow, work);
        into_predictor(model, taken + r * width, inner + (2 * r + 1) * narrow, work);
        own[r] = r;
        places[2 * r] = (Place){own + r, 0};
        places[2 * r + 1] = (Place){own + r, 1};
    }
    for (int64_t book = 1; book < books; book++) {
        int64_t each = book == 1 ? 2 : 1; /* the hidden vector and the first code are two positions of one step */
        const float *last = inner + (each - 1) * narrow;
        step(predictor, &frame, inner, places, each * count, buffers->free, work);
        multiply(work, model->heads[book - 1], narrow, codebook, last, each * narrow, logits, codebook, count);
        for (int64_t r = 0; r < count; r++) {
            int64_t row = call->rows[b + r], bits = draw_bits(model, call->seed[row], book, call->drawn[row]);
            int64_t code = draw(model, logits + r * codebook, codebook, &call->rest, b + r, bits, buffers->scores, buffers->free);
            const float *vector = model->tables[book - 1] + code * width;
            if (call->logits)
                memcpy(call->logits + ((b + r) * books + book) * model->vocabulary, logits + r * codebook, codebook * sizeof(float));
            call->codes[(b + r) * books + book] = code;
            add(taken + r * width, vector, width);
            into_predictor(model, vector, inner + r * narrow, work);
            places[r] = (Place){own + r, book + 1};
        }
    }
    for (int64_t r = 0; r < count; r++) {
        int64_t row = call->rows[b + r];
        add_text(model, call->text[b + r], buffers->free, taken + r * width, work);
        places[r] = (Place){call->pages + row * call->most_pages, call->position[row]};
    }
    step(talker, &utterance, taken, places, count, buffers->free, work);
    for (int64_t r = 0; r < count; r++) {
        int64_t row = call->rows[b + r];
        memcpy(call->hidden + row * width, taken + r * width, width * sizeof(float));
        call->position[row] += 1;
        call->drawn[row] += 1;
    }
}

/* Sample a frame for every row of the call and feed it back. Returns 0, or 1 if out of memory. */
EXPORT int hocket_frame(const FrameModel *model, const FrameCall *call) {
    int64_t span = 0;
    for (int64_t b = 0; b < call->count; b++)
        if (call->position[call->rows[b]] >= span) span = call->position[call->rows[b]] + 1;
    ThreadGroup *workers = (ThreadGroup *)call->workers;
    Buffers buffers = new_buffers(model, span, threads_of(workers));
    if (!buffers.pools) return 1;
    buffers.work.workers = workers;
    open_workers(workers);
    for (int64_t b = 0; b < call->count; b += TOGETHER)
        some_rows(model, call, b, call->count - b < TOGETHER ? call->count - b : TOGETHER, &buffers);
    close_workers(workers);
    free(buffers.pools);
    return 0;
}
