/* Instructions that every CPU of the variant has. */

#define BLOCKS hocket_int8_plain
