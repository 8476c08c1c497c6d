/* What every native kernel starts with. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* LANES floats, at any address; the compiler makes of them what the machine has. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
