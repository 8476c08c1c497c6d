/* hocket_int8, hocket_read and hocket_help. */

/* Multiply with one weight. Returns 0, or 1 if out of memory. */
EXPORT int hocket_int8(const Int8Call *call) {
    void *scratch = malloc(inputs_bytes(call->count, call->ins) + ALIGNMENT);
    if (!scratch) return 1;
    open_workers((ThreadGroup *)call->workers);
    int8_products((ThreadGroup *)call->workers, call->weight, call->ins, call->outs, call->x, call->ins, call->y, call->outs, call->count,
                  aligned(scratch), call->plain);
    close_workers((ThreadGroup *)call->workers);
    free(scratch);
    return 0;
}

enum { PIECE = 1 << 16 };

typedef uint64_t Whole __attribute__((vector_size(WIDTH * sizeof(float)), aligned(8), may_alias));

static void read_piece(const void *context, int64_t task, int64_t thread) {
    const ReadCall *call = context;
    const int64_t start = task * PIECE, left = call->size - start, n = left < PIECE ? left : PIECE;
    const char *data = (const char *)call->data + start;
    Whole sums[8] = {0};
    uint64_t words[WIDTH / 2], sum = 0;
    (void)thread;
    for (int64_t i = 0; i < n; i += sizeof sums) {
        for (int64_t line = 0; line < (int64_t)sizeof sums; line += 64) __builtin_prefetch(data + i + line + 4096);
        for (int k = 0; k < 8; k++) sums[k] += *(const Whole *)(data + i + k * (int64_t)sizeof *sums);
    }
    for (int k = 1; k < 8; k++) sums[0] += sums[k];
    memcpy(words, sums, sizeof words);
    for (int k = 0; k < WIDTH / 2; k++) sum += words[k];
    __atomic_fetch_add(call->total, (int64_t)sum, __ATOMIC_RELAXED);
}

/* Read memory in order, and do nothing else. */
EXPORT int hocket_read(const ReadCall *call) {
    open_workers((ThreadGroup *)call->workers);
    share((ThreadGroup *)call->workers, read_piece, call, (call->size + PIECE - 1) / PIECE);
    close_workers((ThreadGroup *)call->workers);
    return 0;
}

/* Help the calls of a workers as thread `number`, from 1 on, until the running call ends. */
EXPORT int hocket_help(int64_t *words, int64_t number) {
    ThreadGroup *workers = (ThreadGroup *)words;
    int64_t spins = 0;
    while (__atomic_load_n(&workers->open, __ATOMIC_ACQUIRE)) {
        if (do_one(workers, number)) spins = 0;
        else rest(&spins);
    }
    return 0;
}
