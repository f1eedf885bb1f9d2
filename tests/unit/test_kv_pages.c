/* test_kv with pages of several positions, which the engine does not use yet. */
#define KV_PAGE 4
#include "unit/test_kv.c"
