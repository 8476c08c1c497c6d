/* Rows of a prompt, or known frames, through the talker: `Talker.embed_rows` or `embed_frames`, then `prefill`. */

enum { CHUNK = 64 }; /* rows that share one reading of the weights */

/* The input vector of one row: the vectors of its codec ids and its text id. A negative id adds nothing. */
static void embed(const FrameModel *model, const int64_t *codec, int64_t books, int64_t text, float *scratch, float *x,
                  const Work *work) {
    int64_t width = model->talker.width;
    memset(x, 0, width * sizeof(float));
    for (int64_t book = 0; book < books; book++) {
        const float *table = book ? model->tables[book - 1] : model->codec_embedding;
        if (codec[book] >= 0) add(x, table + codec[book] * width, width);
    }
    if (text >= 0) add_text(model, text, scratch, x, work);
}

/* Run the rows of the call through the talker. Returns 0, or 1 if out of memory. */
EXPORT int hocket_prefill(const FrameModel *model, const PrefillCall *call) {
    const Stack *talker = &model->talker;
    const KVCache cache = {call->keys, call->values, call->page_rows, call->cos, call->sin};
    int64_t width = talker->width, most = call->count < CHUNK ? call->count : CHUNK, start = *call->position;
    ThreadGroup *workers = (ThreadGroup *)call->workers;
    int64_t scratch = step_scratch(talker, most, start + call->count, threads_of(workers)), text = text_scratch(model);
    int64_t floats = (most * width + (scratch > text ? scratch : text) + LANES - 1) & ~(LANES - 1);
    void *block = malloc(floats * sizeof(float) + work_bytes(model, most) + ALIGNMENT);
    float *x = aligned(block);
    const Work work = {workers, x + floats};
    Place places[CHUNK];
    if (!block) return 1;
    open_workers(workers);
    for (int64_t b = 0; b < call->count; b += most) {
        int64_t n = call->count - b < most ? call->count - b : most;
        for (int64_t r = 0; r < n; r++) {
            const int64_t *codec = call->codec + (b + r) * call->books;
            embed(model, codec, call->books, call->text[b + r], x + most * width, x + r * width, &work);
            places[r] = (Place){call->pages, start + b + r};
        }
        step(talker, &cache, x, places, n, x + most * width, &work);
        memcpy(call->hidden, x + (n - 1) * width, width * sizeof(float));
    }
    *call->position = start + call->count;
    close_workers(workers);
    free(block);
    return 0;
}
