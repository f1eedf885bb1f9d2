/* Cache events on their way to routers: MessagePack to the byte, the ring, batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/kv_queue.h"
#include "server/msgpack.h"

static void expect_bytes(struct buf *b, const char *hex)
{
    char shown[4096] = "";
    assert_false(b->failed);
    for (size_t i = 0; i < b->length && 2 * i < sizeof shown - 2; i++)
        snprintf(shown + 2 * i, 3, "%02x", (unsigned char)b->data[i]);
    assert_string_equal(shown, hex);
    buf_deinit(b);
}

static void values_take_their_shortest_form(void **state)
{
    (void)state;
    struct buf b = {0};
    static const uint64_t numbers[] = {0,     127,   128,        255,        256,
                                       65535, 65536, UINT32_MAX, 1ull << 32, UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) msgpack_uint(&b, numbers[i]);
    expect_bytes(&b, "007fcc80ccffcd0100cdffffce00010000ceffffffffcf0000000100000000"
                     "cfffffffffffffffff");
    msgpack_array(&b, 0);
    msgpack_array(&b, 15);
    msgpack_array(&b, 16);
    msgpack_array(&b, 65536);
    msgpack_nil(&b);
    msgpack_real(&b, 1.5);
    msgpack_text(&b, "ab");
    expect_bytes(&b, "909fdc0010dd00010000c0cb3ff8000000000000a26162");
    msgpack_text(&b, "0123456789012345678901234567890");
    msgpack_text(&b, "01234567890123456789012345678901");
    assert_int_equal((unsigned char)b.data[0], 0xA0 | 31);
    assert_int_equal((unsigned char)b.data[32], 0xD9);
    buf_deinit(&b);
}

static struct kv_record stored(uint64_t parent, uint64_t block, int32_t id)
{
    struct kv_record r = {.block = block, .parent = parent, .engine = 1, .n_ids = 2};
    r.ids[0] = id;
    r.ids[1] = id + 1;
    return r;
}

static void blocks_that_follow_each_other_are_one_event(void **state)
{
    (void)state;
    struct buf b = {0};
    struct kv_record records[] = {stored(0, 5, 10),
                                  stored(5, 6, 20),
                                  stored(5, 7, 30),
                                  {.block = 6, .engine = 1},
                                  {.block = 7, .engine = 1}};
    kv_batch_add(&b, 1.5, records, 5);
    expect_bytes(&b, "93cb3ff800000000000093"
                     "98ab426c6f636b53746f726564"       /* BlockStored */
                     "920506c0940a0b141502c0a3475055c0" /* 5 and 6, four ids, 2 a block */
                     "98ab426c6f636b53746f726564"       /* 7 goes on after 5 */
                     "910705921e1f02c0a3475055c0"       /* */
                     "93ac426c6f636b52656d6f7665649206" /* BlockRemoved: 6 and 7 */
                     "07a347505501");
    kv_batch_add_cleared(&b, 1.5, 3);
    expect_bytes(&b, "93cb3ff80000000000009191b0416c6c426c6f636b73436c656172656403");
}

static bool add(struct kv_queue *q, uint32_t engine, uint64_t block)
{
    static const int32_t ids[2] = {1, 2};
    struct carat_cache_event event = {.block = block, .ids = ids, .n_ids = 2};
    return kv_queue_add(q, engine, &event);
}

static void a_batch_has_the_records_of_one_engine(void **state)
{
    (void)state;
    static struct kv_record out[KV_BATCH];
    struct kv_queue q;
    assert_int_equal(kv_queue_open(&q, NULL), CARAT_OK);
    assert_true(add(&q, 0, 1));
    assert_false(add(&q, 0, 2));
    assert_false(add(&q, 1, 3));
    struct carat_cache_event removed = {.is_removed = true, .block = 3};
    assert_false(kv_queue_add(&q, 1, &removed));
    assert_int_equal(kv_queue_take(&q, out), 2);
    assert_int_equal(out[1].block, 2);
    assert_int_equal(kv_queue_take(&q, out), 2);
    assert_int_equal(out[0].n_ids, 2);
    assert_int_equal(out[1].n_ids, 0);
    assert_int_equal(kv_queue_take(&q, out), 0);
    assert_true(add(&q, 0, 4));
    kv_queue_close(&q);
}

static void what_a_full_ring_drops_is_a_gap(void **state)
{
    (void)state;
    static struct kv_record out[KV_BATCH];
    struct kv_queue q;
    size_t n = 0, n_gaps = 0;
    assert_int_equal(kv_queue_open(&q, NULL), CARAT_OK);
    for (uint64_t i = 0; i < KV_QUEUE + 3; i++) add(&q, 0, i + 1);
    assert_int_equal(kv_queue_take(&q, out), KV_BATCH);
    add(&q, 0, 999999); /* after the gap */
    add(&q, 0, 999998);
    for (size_t k; (k = kv_queue_take(&q, out)) > 0; n += k) {
        for (size_t i = 1; i < k; i++) assert_false(out[i].is_gap);
        if (!out[0].is_gap) continue;
        n_gaps++;
        assert_int_equal(out[0].block, 999999);
        assert_int_equal(k, 2);
    }
    assert_int_equal(n, KV_QUEUE - KV_BATCH + 2);
    assert_int_equal(n_gaps, 1);
    kv_queue_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_take_their_shortest_form),
        cmocka_unit_test(blocks_that_follow_each_other_are_one_event),
        cmocka_unit_test(a_batch_has_the_records_of_one_engine),
        cmocka_unit_test(what_a_full_ring_drops_is_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
