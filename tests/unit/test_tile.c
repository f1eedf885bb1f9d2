/* Weights on their way from the mapped file into the CPU backend's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/tile.h"
#include "base/os.h"

enum { EXPERTS = 3, COLS = 32 };

/* A stack whose matrices take every second page, like the second half of a fused stack that ends
 * where the mapped file ends. The page after it belongs to something else. A page of this memory
 * that was given back reads as zeros. */
static void filling_gives_back_no_page_after_the_last_matrix(void **state)
{
    (void)state;
    static const enum format formats[] = {FORMAT_F32, FORMAT_Q8_0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        size_t row_bytes = format_row_bytes(formats[i], COLS), bytes = 2 * EXPERTS * page;
        uint8_t *file = os_pages_take(bytes);
        assert_non_null(file);
        memset(file, 1, bytes);
        struct weight source = {.name = "up",
                                .format = formats[i],
                                .n_expert = EXPERTS,
                                .rows = (int64_t)(page / row_bytes),
                                .cols = COLS,
                                .row_bytes = row_bytes,
                                .expert_bytes = 2 * page,
                                .data = file};
        struct cpu_weight w = {.source = &source};
        struct pool *pool;
        struct carat_error err = {0};
        assert_int_equal(pool_open(&pool, &(struct pool_options){.n_threads = 1}, &err), CARAT_OK);
        tile_plan(&w, AHEAD_NONE);
        uint8_t *memory = os_pages_take(w.bytes);
        assert_non_null(memory);
        tile_fill(&w, memory, pool);
        for (size_t at = bytes - page; at < bytes; at++) assert_int_equal(file[at], 1);
        if (formats[i] == FORMAT_F32) assert_int_equal(file[0], 0); /* its own pages */
        pool_close(pool);
        os_pages_give(memory, w.bytes);
        os_pages_give(file, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filling_gives_back_no_page_after_the_last_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
