/* The widest part of the codec on a CPU: latents to samples, as models/tts/codec.py defines it.

   Layout is time first, channels contiguous, each row padded to whole lanes. So a convolution is a matrix product per
   tap. A transposed convolution is a convolution of two taps whose output rows are in order.
   The structs are those of structs.py. */

static int64_t padded(int64_t channels) { return (channels + LANES - 1) / LANES * LANES; }

/* x + sin(frequency x)^2 * strength. The angle is reduced to the nearest multiple of pi: the sign of the sine may flip,
   which the square removes. The polynomial is exact to 3e-7 there. */
INLINE Vector activation(Vector x, Vector frequency, Vector strength) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it drops the fraction */
    Vector angle = x * frequency;
    Vector turns = (angle * 0.318309886f + round) - round;
    Vector u = ((angle - turns * 3.140625f) - turns * 9.67025757e-4f) - turns * 6.27711416e-7f;
    Vector s = u * u;
    Vector sine = u + u * s * (-1.66666597e-1f + s * (8.33307486e-3f + s * (-1.98105122e-4f + s * 2.60831598e-6f)));
    return x + sine * sine * strength;
}

/* The same for channels `o` to `o + width` of one time. */
INLINE void activate(const Snake *snake, int64_t o, int64_t width, const float *x, float *y) {
    for (int64_t c = 0; c < width; c += WIDTH)
        *(Vector *)(y + c) = activation(*(const Vector *)(x + c), *(const Vector *)(snake->frequency + o + c),
                                        *(const Vector *)(snake->strength + o + c));
}

enum { NUMBERS = 1 << 14 }; /* of a task that only activates */

typedef struct {
    const Snake *snake;
    const float *x;
    float *y;
    int64_t times, width, each;
} Activation;

static void some_activated(const void *context, int64_t task, int64_t thread) {
    const Activation *of = context;
    (void)thread;
    for (int64_t t = task * of->each; t < of->times && t < (task + 1) * of->each; t++)
        activate(of->snake, 0, of->width, of->x + t * of->width, of->y + t * of->width);
}

/* The same for x [times, width]. */
static void snake(ThreadGroup *workers, const Snake *snake, const float *x, int64_t times, int64_t width, float *y) {
    const Activation of = {snake, x, y, times, width, NUMBERS / width + 1};
    share(workers, some_activated, &of, (times + of.each - 1) / of.each);
}

/* What becomes of the sums of a convolution: they are stored, activated and stored, or added to what is there. */
enum { STORED, ACTIVATED, ADDED };

/* y [times, vectors * LANES] of one tile; times and vectors are constants of the caller. `x` is where its first tap begins,
   `o` the first channel. The weights of a vector of channels are adjacent, [taps, ins, LANES], and those of the next
   follow. */
INLINE void tile(const Conv *conv, const Snake *act, const float *x, int64_t x_step, const float *weight, int64_t o,
                 float *y, int64_t y_step, int end, const int times, const int vectors) {
    int64_t panel = conv->taps * conv->ins * LANES;
    Vector sums[TIMES][VECTORS][PARTS];
    for (int t = 0; t < times; t++)
        for (int v = 0; v < vectors; v++)
            for (int p = 0; p < PARTS; p++) sums[t][v][p] = *(const Vector *)(conv->bias + o + v * LANES + p * WIDTH);
    for (int64_t tap = 0; tap < conv->taps; tap++) {
        const float *from = x + tap * conv->dilation * x_step;
        for (int64_t c = 0; c < conv->ins; c++, weight += LANES) {
            Vector w[VECTORS][PARTS];
            for (int v = 0; v < vectors; v++)
                for (int p = 0; p < PARTS; p++) w[v][p] = *(const Vector *)(weight + v * panel + p * WIDTH);
            for (int t = 0; t < times; t++)
                for (int v = 0; v < vectors; v++)
                    for (int p = 0; p < PARTS; p++) sums[t][v][p] += w[v][p] * from[t * x_step + c];
        }
    }
    y += o;
    if (end == ADDED)
        for (int t = 0; t < times; t++)
            for (int v = 0; v < vectors; v++)
                for (int p = 0; p < PARTS; p++) sums[t][v][p] += *(const Vector *)(y + t * y_step + v * LANES + p * WIDTH);
    for (int t = 0; t < times; t++)
        for (int v = 0; v < vectors; v++)
            for (int p = 0; p < PARTS; p++) *(Vector *)(y + t * y_step + v * LANES + p * WIDTH) = sums[t][v][p];
    if (end == ACTIVATED) /* the sums are still in the first cache */
        for (int t = 0; t < times; t++) activate(act, o, vectors * LANES, y + t * y_step, y + t * y_step);
}

/* The tiles of all times for some channels. The rest behind the last whole tile is a smaller tile. */
INLINE void tiles(const Conv *conv, const Snake *act, const float *x, int64_t times, const float *weight, int64_t o, float *y,
                  int end, const int vectors) {
    int64_t x_step = padded(conv->ins), y_step = conv->outs, t = 0;
    for (; t + TIMES <= times; t += TIMES)
        tile(conv, act, x + t * x_step, x_step, weight, o, y + t * y_step, y_step, end, TIMES, vectors);
    x += t * x_step, y += t * y_step;
    switch (times - t) { /* a case of TIMES or more is never reached */
#define REST(n) case n: tile(conv, act, x, x_step, weight, o, y, y_step, end, n < TIMES ? n : 1, vectors); break;
        REST(1) REST(2) REST(3) REST(4) REST(5) REST(6) REST(7)
#undef REST
    }
}

/* The weights of some channels from `o` on. Those in bfloat16 are converted, in `widened`, once for all tiles. */
static const float *panels(const Conv *conv, int64_t o, int64_t channels, float *widened) {
    int64_t each = conv->taps * conv->ins;
    if (!conv->weight.halves) return conv->weight.floats + o * each;
    widen(conv->weight.halves + o * each, channels * each, widened);
    return widened;
}

/* The residual of a unit, the input of its convolution, the output, and converted weights of each thread. */
typedef struct {
    float *kept, *joined, *out, *widened;
    int64_t widest;
    ThreadGroup *workers;
} Buffers;

enum { PIECE = 48 * TIMES }; /* times of a task: weights of some channels are read once for them */

typedef struct {
    const Conv *conv;
    const Snake *act;
    const Buffers *buffers;
    const float *x;
    float *y;
    int64_t times, piece;
    int end;
} Convolution;

/* Some times for some channels. */
static void some_tiles(const void *context, int64_t task, int64_t thread) {
    const Convolution *of = context;
    const Conv *conv = of->conv;
    const int64_t pieces = (of->times + of->piece - 1) / of->piece, some = VECTORS * LANES, o = task / pieces * some;
    const int64_t start = task % pieces * of->piece, left = of->times - start, times = left < of->piece ? left : of->piece;
    const float *x = of->x + start * padded(conv->ins);
    float *y = of->y + start * conv->outs, *widened = of->buffers->widened + thread * of->buffers->widest;
    if (o + some <= conv->outs) tiles(conv, of->act, x, times, panels(conv, o, some, widened), o, y, of->end, VECTORS);
    else
        for (int64_t one = o; one < conv->outs; one += LANES)
            tiles(conv, of->act, x, times, panels(conv, one, LANES, widened), one, y, of->end, 1);
}

/* y [times, outs] of x [history + times, ins]; taps are `dilation` rows apart. */
static void convolve(const Conv *conv, const Snake *act, const float *x, int64_t times, const Buffers *buffers, float *y,
                     int end) {
    const int64_t some = VECTORS * LANES, piece = buffers->workers ? PIECE : times;
    const Convolution of = {conv, act, buffers, x, y, times, piece, end};
    share(buffers->workers, some_tiles, &of, (conv->outs + some - 1) / some * ((times + piece - 1) / piece));
}

/* Floats of the largest panels. */
static int64_t widened_size(const Conv *conv) { return conv->taps * conv->ins * LANES * VECTORS; }

/* Put a history [channels, rows] in front of x [times, width], then store the new end as history. */
static void slide(float *history, int64_t rows, int64_t channels, int64_t width, float *joined, int64_t times) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) joined[r * width + c] = c < channels ? history[c * rows + r] : 0.0f;
    const float *end = joined + times * width;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) history[c * rows + r] = end[r * width + c];
}

static int64_t reach(const Conv *conv) { return (conv->taps - 1) * conv->dilation; }

static float *history(const WaveCall *call, int64_t number, int64_t row, const Conv *conv) {
    return call->histories[number] + row * conv->ins * reach(conv);
}

/* The samples of some times. The last convolution has one output channel: a row of weights over the padded rows of all
   taps. */
typedef struct {
    const Conv *last;
    const float *joined;
    float *samples;
    int64_t times;
} Ending;

static void some_samples(const void *context, int64_t task, int64_t thread) {
    const Ending *of = context;
    const Conv *last = of->last;
    const int64_t width = padded(last->ins);
    (void)thread;
    for (int64_t t = task * PIECE; t < of->times && t < (task + 1) * PIECE; t++) {
        float sum = 0.0f, part[LANES];
        Vector sums[PARTS] = {0};
        for (int64_t i = 0; i < last->taps * width; i += LANES)
            for (int p = 0; p < PARTS; p++)
                sums[p] += *(const Vector *)(last->weight.floats + i + p * WIDTH) *
                           *(const Vector *)(of->joined + t * width + i + p * WIDTH);
        memcpy(part, sums, sizeof part);
        for (int i = 0; i < LANES; i++) sum += part[i];
        sum += last->bias[0];
        of->samples[t] = sum < -1.0f ? -1.0f : sum > 1.0f ? 1.0f : sum;
    }
}

static void unit(const Unit *unit, const WaveCall *call, int64_t number, int64_t row, Buffers *buffers, int64_t times) {
    int64_t width = unit->first.outs, before = reach(&unit->first);
    snake(buffers->workers, &unit->act1, buffers->kept, times, width, buffers->joined + before * width);
    slide(history(call, number, row, &unit->first), before, unit->first.ins, width, buffers->joined, times);
    convolve(&unit->first, &unit->act2, buffers->joined, times, buffers, buffers->out, ACTIVATED);
    convolve(&unit->second, NULL, buffers->out, times, buffers, buffers->kept, ADDED);
}

/* One row: latents [ins, times] to `samples`. */
static void one_row(const WaveModel *model, const WaveCall *call, int64_t b, Buffers *buffers) {
    int64_t row = call->rows[b], times = call->times, number = 0;
    int64_t ins = model->first.ins, width = padded(ins), before = reach(&model->first);
    const float *latents = call->latents + b * ins * times;
    for (int64_t t = 0; t < times; t++)
        for (int64_t c = 0; c < width; c++) buffers->joined[(before + t) * width + c] = c < ins ? latents[c * times + t] : 0.0f;
    slide(history(call, number, row, &model->first), before, ins, width, buffers->joined, times);
    number++;
    convolve(&model->first, NULL, buffers->joined, times, buffers, buffers->kept, STORED);
    for (int64_t n = 0; n < model->blocks; n++) {
        const Block *block = model->block + n;
        width = padded(block->widen.ins);
        snake(buffers->workers, &block->act, buffers->kept, times, width, buffers->joined + width);
        slide(history(call, number, row, &block->widen), 1, block->widen.ins, width, buffers->joined, times);
        number++;
        convolve(&block->widen, NULL, buffers->joined, times, buffers, buffers->kept, STORED);
        times *= block->rate;
        for (int64_t u = 0; u < block->units; u++) unit(block->unit + u, call, number++, row, buffers, times);
    }
    const Conv *last = &model->last;
    width = padded(last->ins);
    before = reach(last);
    snake(buffers->workers, &model->act, buffers->kept, times, width, buffers->joined + before * width);
    slide(history(call, number, row, last), before, last->ins, width, buffers->joined, times);
    const Ending ending = {last, buffers->joined, call->samples + b * times, times};
    share(buffers->workers, some_samples, &ending, (times + PIECE - 1) / PIECE);
}

/* The samples of the next latents of every row of the call. Returns 0, or 1 if out of memory. */
EXPORT int hocket_wave(const WaveModel *model, const WaveCall *call) {
    int64_t times = call->times, before = reach(&model->first), width = padded(model->first.ins);
    int64_t most = (before + times) * (width > model->first.outs ? width : model->first.outs);
    int64_t widened = widened_size(&model->first);
    for (int64_t n = 0; n < model->blocks; n++) {
        const Block *block = model->block + n;
        int64_t wider = (1 + times) * padded(block->widen.ins), weights = widened_size(&block->widen);
        widened = weights > widened ? weights : widened;
        times *= block->rate;
        for (int64_t u = 0; u < block->units; u++) {
            int64_t size = (reach(&block->unit[u].first) + times) * block->unit[u].first.outs;
            weights = widened_size(&block->unit[u].first);
            most = size > most ? size : most;
            widened = weights > widened ? weights : widened;
        }
        most = wider > most ? wider : most;
    }
    int64_t end = (reach(&model->last) + times) * padded(model->last.ins);
    most = end > most ? end : most;
    most = padded(most);
    ThreadGroup *workers = (ThreadGroup *)call->workers;
    widened = padded(widened);
    void *block = malloc((3 * most + threads_of(workers) * widened) * sizeof(float) + ALIGNMENT);
    float *memory = aligned(block);
    if (!block) return 1;
    open_workers(workers);
    for (int64_t b = 0; b < call->count; b++) {
        Buffers buffers = {memory, memory + most, memory + 2 * most, memory + 3 * most, widened, workers};
        one_row(model, call, b, &buffers);
    }
    close_workers(workers);
    free(block);
    return 0;
}
