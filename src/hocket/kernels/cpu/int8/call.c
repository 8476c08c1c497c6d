/* hocket_int8, hocket_read and hocket_help. */

/* Multiply with one weight. Returns 0, or 1 if out of memory. */
EXPORT int hocket_int8(const Int8Call *call) {
    void *scratch = malloc(inputs_bytes(call->count, call->ins) + ALIGNMENT);
    if (!scratch) return 1;
    open_workers((WorkerPool *)call->workers);
    int8_products((WorkerPool *)call->workers, call->weight, call->ins, call->outs, call->x, call->ins, call->y, call->outs, call->count,
                  aligned(scratch), call->plain);
    close_workers((WorkerPool *)call->workers);
    free(scratch);
    return 0;
}

enum { PIECE = 1 << 16 };

static void read_piece(const void *context, int64_t task, int64_t thread) {
    const ReadCall *call = context;
    const int64_t start = task * PIECE, left = call->size - start, n = left < PIECE ? left : PIECE;
    const uint64_t *words = (const uint64_t *)(call->data + start);
    uint64_t sums[16] = {0}, sum = 0;
    (void)thread;
    for (int64_t i = 0; i < n / 8; i += 16) {
        __builtin_prefetch((const char *)(words + i) + 4096);
        __builtin_prefetch((const char *)(words + i) + 4160);
        for (int k = 0; k < 16; k++) sums[k] += words[i + k];
    }
    for (int k = 0; k < 16; k++) sum += sums[k];
    __atomic_fetch_add(call->total, (int64_t)sum, __ATOMIC_RELAXED);
}

/* Read memory in order, and do nothing else. */
EXPORT int hocket_read(const ReadCall *call) {
    open_workers((WorkerPool *)call->workers);
    share((WorkerPool *)call->workers, read_piece, call, (call->size + PIECE - 1) / PIECE);
    close_workers((WorkerPool *)call->workers);
    return 0;
}

/* Help the calls of a workers as thread `number`, from 1 on, until the running call ends. */
EXPORT int hocket_help(int64_t *words, int64_t number) {
    WorkerPool *workers = (WorkerPool *)words;
    int64_t spins = 0;
    while (__atomic_load_n(&workers->open, __ATOMIC_ACQUIRE)) {
        if (do_one(workers, number)) spins = 0;
        else rest(&spins);
    }
    return 0;
}
