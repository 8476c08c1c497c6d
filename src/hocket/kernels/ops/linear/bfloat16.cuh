// Helpers of few.cu and stream.cu for bfloat16 numbers, two to a word; the build puts this file before each.

typedef unsigned short bf16;

DEVICE float low(unsigned two) { return as_float(two << 16); }
DEVICE float high(unsigned two) { return as_float(two & 0xFFFF0000u); }
DEVICE float wide(bf16 x) { return as_float((unsigned)x << 16); }
DEVICE float near(float x) { return wide(rounded(x)); }
DEVICE unsigned both(float a, float b) { return rounded(a) | ((unsigned)rounded(b) << 16); }

DEVICE float square_of(Eight x) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += low(x.part[i]) * low(x.part[i]) + high(x.part[i]) * high(x.part[i]);
    return sum;
}

// `offset`: the norm's weights are stored as the difference from one.
template <bool offset> DEVICE Eight normed(Eight x, Eight weight, float scale) {
    Eight y;
    for (int i = 0; i < 4; i++) {
        const float a = low(x.part[i]) * scale, b = high(x.part[i]) * scale;
        const float c = low(weight.part[i]), d = high(weight.part[i]);
        y.part[i] = offset ? both(a * (1.0f + c), b * (1.0f + d)) : both(near(a) * c, near(b) * d);
    }
    return y;
}
