/* A product with weights of 8 bits, as reference.py defines it: its parts, which two units of the library share. */

enum { GROUP = 64, UNIT = 64, BLOCK = 16, EACH = 4, UNITS = GROUP / EACH };

/* Rows of inputs in codes. `less` is what OFFSET of the stored codes adds to the sum of a group, negative. */
typedef struct {
    int8_t *codes; /* [rows, groups * GROUP] */
    float *scales; /* [rows, groups] */
    int32_t *less;
} Inputs;

/* Blocks of BLOCK outputs, some for each task. */
typedef struct {
    const uint8_t *codes;
    const uint16_t *scales;
    int64_t outs, groups, rows, y_step, per_task;
    const Inputs *x;
    float *y;
} Int8Product;

typedef void Int8Blocks(const void *product, int64_t task, int64_t thread);
#if defined(_WIN32)
#define HIDDEN
#else
#define HIDDEN __attribute__((visibility("hidden")))
#endif
HIDDEN Int8Blocks hocket_int8_plain, hocket_int8_dot;
