/* test_kv with pages of another size than the engine's. */
#if defined KV_PAGE && KV_PAGE == 32
#undef KV_PAGE
#define KV_PAGE 64
#else
#undef KV_PAGE
#define KV_PAGE 32
#endif
#define kv_cache_shape shape_of_these_pages /* not the library's, which has its own size */
#include "plan/kv.c"
#include "unit/test_kv.c"
