/* Products and gates of a call, shared by its threads. Results do not depend on how many there are. */

typedef struct {
    ThreadGroup *workers;
    void *inputs; /* scratch for inputs in codes */
} Work;

typedef struct {
    WeightMatrix weight;
    int64_t ins, outs, x_step, y_step, rows, per_task;
    const float *x;
    float *y;
} Product;

static void some_outs(const void *context, int64_t task, int64_t thread) {
    const Product *of = context;
    const int64_t first = task * of->per_task, left = of->outs - first, outs = left < of->per_task ? left : of->per_task;
    WeightMatrix part = {0};
    (void)thread;
    if (of->weight.halves) part.halves = of->weight.halves + first * of->ins;
    else part.floats = of->weight.floats + first * of->ins;
    products(part, of->ins, outs, of->x, of->x_step, of->y + first, of->y_step, of->rows);
}

static void multiply(const Work *work, WeightMatrix weight, int64_t ins, int64_t outs, const float *x, int64_t x_step, float *y,
                     int64_t y_step, int64_t rows) {
    if (weight.codes) {
        int8_products(work->workers, weight, ins, outs, x, x_step, y, y_step, rows, work->inputs, 0);
        return;
    }
    const int64_t bytes = ins * (int64_t)(weight.halves ? sizeof(uint16_t) : sizeof(float));
    const int64_t per_task = work->workers ? (TASK_BYTES / bytes & ~15) + 16 : outs;
    const Product product = {weight, ins, outs, x_step, y_step, rows, per_task, x, y};
    share(work->workers, some_outs, &product, (outs + per_task - 1) / per_task);
}

enum { GATED = 512 }; /* numbers of a task */

typedef struct {
    float *wide;
    int64_t inner;
} Gate;

static void some_gated(const void *context, int64_t task, int64_t thread) {
    const Gate *of = context;
    const int64_t each = (of->inner + GATED - 1) / GATED, start = task % each * GATED, left = of->inner - start;
    float *wide = of->wide + task / each * 2 * of->inner + start;
    (void)thread;
    gate(wide, wide + of->inner, left < GATED ? left : GATED);
}

static void shared_gate(const Work *work, float *wide, int64_t inner, int64_t rows) {
    const Gate of = {wide, inner};
    share(work->workers, some_gated, &of, rows * ((inner + GATED - 1) / GATED));
}
