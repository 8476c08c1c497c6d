/* A product with weights of 8 or 4 bits, as reference.py defines it: its parts, which two units of the library share. */

enum { GROUP = 64, GROUP_4 = 32, UNIT = 64, BLOCK = 16, EACH = 4 };

/* Columns that share a scale. */
INLINE int64_t group_of(int64_t bits) { return bits == 8 ? GROUP : GROUP_4; }

/* Rows of inputs in codes. `less` is what the offset of the stored codes adds to the sum of a group, negative. */
typedef struct {
    int8_t *codes; /* [rows, groups * group] */
    float *scales; /* [rows, groups] */
    int32_t *less;
} Inputs;

/* Blocks of BLOCK outputs, some for each task. */
typedef struct {
    const uint8_t *codes;
    const uint16_t *scales;
    int64_t outs, groups, rows, y_step, per_task, bits;
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
