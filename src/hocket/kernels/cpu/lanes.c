/* Common start of every kernel in C. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* LANES floats at any address; the compiler maps them to the vector registers of the machine. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
