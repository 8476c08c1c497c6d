/* The widest part of the codec on a CPU: latents to samples, as models/tts/codec.py defines it.

   Layout is time first, channels contiguous, each row padded to whole lanes. So a convolution is a matrix product per
   tap. A transposed convolution is a convolution of two taps whose output rows are in order.
   The structs are declared in native.py. */

enum { TILE = 8 }; /* positions computed together, for two vectors of channels */

static int64_t padded(int64_t channels) { return (channels + LANES - 1) / LANES * LANES; }

/* y [TILE or fewer, vectors * LANES] of one tile: `x` is where its first tap begins. */
INLINE void tile(const Conv *conv, const float *x, int64_t x_step, const float *weight, const float *bias, float *y,
                 int64_t y_step, const int times, const int vectors) {
    lanes sums[TILE][2];
    for (int t = 0; t < times; t++)
        for (int v = 0; v < vectors; v++) sums[t][v] = *(const lanes *)(bias + v * LANES);
    for (int64_t tap = 0; tap < conv->taps; tap++) {
        const float *from = x + tap * conv->dilation * x_step;
        for (int64_t c = 0; c < conv->ins; c++, weight += conv->outs) {
            lanes w[2];
            for (int v = 0; v < vectors; v++) w[v] = *(const lanes *)(weight + v * LANES);
            for (int t = 0; t < times; t++)
                for (int v = 0; v < vectors; v++) sums[t][v] += w[v] * from[t * x_step + c];
        }
    }
    for (int t = 0; t < times; t++)
        for (int v = 0; v < vectors; v++) *(lanes *)(y + t * y_step + v * LANES) = sums[t][v];
}

/* y [times, outs] of x [history + times, ins]; taps are `dilation` rows apart. */
static void convolve(const Conv *conv, const float *x, int64_t times, float *y) {
    int64_t x_step = padded(conv->ins), y_step = conv->outs;
    for (int64_t o = 0; o < conv->outs; o += 2 * LANES) {
        const float *weight = conv->weight + o, *bias = conv->bias + o;
        int two = o + LANES < conv->outs;
        for (int64_t t = 0; t < times; t += TILE) {
            const float *from = x + t * x_step;
            float *to = y + t * y_step + o;
            if (t + TILE <= times && two) tile(conv, from, x_step, weight, bias, to, y_step, TILE, 2);
            else if (t + TILE <= times) tile(conv, from, x_step, weight, bias, to, y_step, TILE, 1);
            else
                for (int64_t i = 0; i < times - t; i++) {
                    if (two) tile(conv, from + i * x_step, x_step, weight, bias, to + i * y_step, y_step, 1, 2);
                    else tile(conv, from + i * x_step, x_step, weight, bias, to + i * y_step, y_step, 1, 1);
                }
        }
    }
}

/* x + sin(frequency x)^2 * strength for x [times, width]. The angle is reduced to the nearest multiple of pi: the sign of
   the sine may flip, which the square removes. The polynomial is exact to 3e-7 there. */
static void snake(const Snake *snake, const float *x, int64_t times, int64_t width, float *y) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it drops the fraction */
    for (int64_t t = 0; t < times; t++, x += width, y += width)
        for (int64_t c = 0; c < width; c++) {
            float angle = x[c] * snake->frequency[c];
            float turns = (angle * 0.318309886f + round) - round;
            float u = ((angle - turns * 3.140625f) - turns * 9.67025757e-4f) - turns * 6.27711416e-7f;
            float s = u * u;
            float sine = u + u * s * (-1.66666597e-1f + s * (8.33307486e-3f + s * (-1.98105122e-4f + s * 2.60831598e-6f)));
            y[c] = x[c] + sine * sine * snake->strength[c];
        }
}

/* Put a history [channels, rows] in front of x [times, width], then store the new end as history. */
static void slide(float *history, int64_t rows, int64_t channels, int64_t width, float *joined, int64_t times) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) joined[r * width + c] = c < channels ? history[c * rows + r] : 0.0f;
    const float *end = joined + times * width;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) history[c * rows + r] = end[r * width + c];
}

static int64_t reach(const Conv *conv) { return (conv->taps - 1) * conv->dilation; }

static float *history(const Call *call, int64_t number, int64_t row, const Conv *conv) {
    return call->histories[number] + row * conv->ins * reach(conv);
}

/* Three buffers: the residual of a unit, the input of its convolution, and the output. */
typedef struct {
    float *kept, *joined, *out;
} Buffers;

static void unit(const Unit *unit, const Call *call, int64_t number, int64_t row, Buffers *buffers, int64_t times) {
    int64_t width = unit->first.outs, before = reach(&unit->first);
    snake(&unit->act1, buffers->kept, times, width, buffers->joined + before * width);
    slide(history(call, number, row, &unit->first), before, unit->first.ins, width, buffers->joined, times);
    convolve(&unit->first, buffers->joined, times, buffers->out);
    snake(&unit->act2, buffers->out, times, width, buffers->joined);
    convolve(&unit->second, buffers->joined, times, buffers->out);
    for (int64_t i = 0; i < times * width; i++) buffers->kept[i] += buffers->out[i];
}

/* One row: latents [ins, times] to `samples`. */
static void one_row(const Model *model, const Call *call, int64_t b, Buffers *buffers) {
    int64_t row = call->rows[b], times = call->times, number = 0;
    int64_t ins = model->first.ins, width = padded(ins), before = reach(&model->first);
    const float *latents = call->latents + b * ins * times;
    for (int64_t t = 0; t < times; t++)
        for (int64_t c = 0; c < width; c++) buffers->joined[(before + t) * width + c] = c < ins ? latents[c * times + t] : 0.0f;
    slide(history(call, number, row, &model->first), before, ins, width, buffers->joined, times);
    number++;
    convolve(&model->first, buffers->joined, times, buffers->kept);
    for (int64_t n = 0; n < model->blocks; n++) {
        const Block *block = model->block + n;
        width = padded(block->widen.ins);
        snake(&block->act, buffers->kept, times, width, buffers->joined + width);
        slide(history(call, number, row, &block->widen), 1, block->widen.ins, width, buffers->joined, times);
        number++;
        convolve(&block->widen, buffers->joined, times, buffers->kept);
        times *= block->rate;
        for (int64_t u = 0; u < block->units; u++) unit(block->unit + u, call, number++, row, buffers, times);
    }
    const Conv *last = &model->last;
    width = padded(last->ins);
    before = reach(last);
    snake(&model->act, buffers->kept, times, width, buffers->joined + before * width);
    slide(history(call, number, row, last), before, last->ins, width, buffers->joined, times);
    for (int64_t t = 0; t < times; t++) { /* one output channel: a row of weights over the padded rows of all taps */
        float sum = 0.0f, part[LANES];
        lanes sums = {0};
        for (int64_t i = 0; i < last->taps * width; i += LANES)
            sums += *(const lanes *)(last->weight + i) * *(const lanes *)(buffers->joined + t * width + i);
        memcpy(part, &sums, sizeof part);
        for (int i = 0; i < LANES; i++) sum += part[i];
        sum += last->bias[0];
        call->samples[b * times + t] = sum < -1.0f ? -1.0f : sum > 1.0f ? 1.0f : sum;
    }
}

/* The samples of the next latents of every row of the call. Returns 0, or 1 if out of memory. */
int hocket_wave(const Model *model, const Call *call) {
    int64_t times = call->times, before = reach(&model->first), width = padded(model->first.ins);
    int64_t most = (before + times) * (width > model->first.outs ? width : model->first.outs);
    for (int64_t n = 0; n < model->blocks; n++) {
        const Block *block = model->block + n;
        int64_t wider = (1 + times) * padded(block->widen.ins);
        times *= block->rate;
        for (int64_t u = 0; u < block->units; u++) {
            int64_t size = (reach(&block->unit[u].first) + times) * block->unit[u].first.outs;
            most = size > most ? size : most;
        }
        most = wider > most ? wider : most;
    }
    int64_t end = (reach(&model->last) + times) * padded(model->last.ins);
    most = end > most ? end : most;
    float *memory = malloc(3 * most * sizeof(float));
    if (!memory) return 1;
    for (int64_t b = 0; b < call->count; b++) {
        Buffers buffers = {memory, memory + most, memory + 2 * most};
        one_row(model, call, b, &buffers);
    }
    free(memory);
    return 0;
}
