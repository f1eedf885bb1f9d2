/* Who may ask what: keys in constant time and from files, names of hosts, pages of other sites,
 * where a server may listen, how many requests a key has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "server/guard.h"
#include "server/keys.h"
#include "support/scratch.h"

static struct guard *opened(struct guard_options options)
{
    struct guard *g = NULL;
    struct carat_error err = {0};
    if (guard_open(&g, &options, &err) != CARAT_OK) fail_msg("%s", err.message);
    return g;
}

static struct guard *with_keys(void)
{
    static const char *const keys[] = {"first", "zweiter-schl\xc3\xbcssel"};
    return opened((struct guard_options){.keys = keys, .n_keys = 2, .requests_per_key = 2});
}

static const struct guard_view plain = {.method = "POST", .host = "localhost:8080"};

static int decided(const struct guard *g, struct guard_view view, bool is_open,
                   struct guard_pass *pass)
{
    return guard_decide(g, &view, is_open, pass) ? 200 : pass->error.status;
}

static int with_host(const struct guard *g, const char *host)
{
    struct guard_pass pass;
    struct guard_view view = plain;
    view.host = host;
    return decided(g, view, false, &pass);
}

static int with_origin(const struct guard *g, const char *origin)
{
    struct guard_pass pass;
    struct guard_view view = plain;
    view.origin = origin;
    return decided(g, view, false, &pass);
}

static const char *field(const struct guard_pass *pass, const char *name)
{
    for (size_t i = 0; i < pass->n_fields; i++)
        if (strcmp(pass->fields[i].name, name) == 0) return pass->fields[i].value;
    return NULL;
}

static void test_without_keys_the_host_must_be_local(void **state)
{
    static const char *const names[] = {"chat.example"};
    struct guard *g = opened(
        (struct guard_options){.is_local = true, .allowed_hosts = names, .n_allowed_hosts = 1});
    (void)state;
    assert_int_equal(with_host(g, "localhost"), 200);
    assert_int_equal(with_host(g, "LocalHost:8080"), 200);
    assert_int_equal(with_host(g, "127.0.0.1:8080"), 200);
    assert_int_equal(with_host(g, "127.1.2.3"), 200);
    assert_int_equal(with_host(g, "[::1]:8080"), 200);
    assert_int_equal(with_host(g, "chat.example:443"), 200);
    assert_int_equal(with_host(g, NULL), 200); /* HTTP/1.0: no browser */
    static const char *const refused[] = {
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "chat.example.evil",
        "evilchat.example",
        "192.168.1.7",
        "",
        ":8080",
        "localhost:80x",
        "[::1",
        "[::2]",
        "localhost/evil",
        "localhost:80@evil:80",
        "0.0.0.0",
        "[::1]evil",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (with_host(g, refused[i]) != 403) fail_msg("\"%s\" passes", refused[i]);
    guard_close(g);
}

static void test_addresses_are_hosts_when_others_can_connect(void **state)
{
    struct guard *g = opened((struct guard_options){0});
    (void)state;
    assert_int_equal(with_host(g, "192.168.1.7:8080"), 200);
    assert_int_equal(with_host(g, "[fe80::1]"), 200);
    assert_int_equal(with_host(g, "evil.example"), 403);
    guard_close(g);
}

static void test_with_keys_or_on_unix_sockets_any_host_passes(void **state)
{
    struct guard *g = with_keys(), *local = opened((struct guard_options){.is_local = true});
    struct guard_pass pass;
    struct guard_view view = {.method = "GET", .host = "evil.example"};
    (void)state;
    view.authorization = "Bearer first";
    assert_int_equal(decided(g, view, false, &pass), 200);
    view.is_unix = true;
    assert_int_equal(decided(local, view, false, &pass), 200);
    guard_close(g);
    guard_close(local);
}

static void test_without_keys_pages_of_other_sites_are_refused(void **state)
{
    static const char *const listed[] = {"https://chat.example/"};
    struct guard *g =
        opened((struct guard_options){.is_local = true, .origins = listed, .n_origins = 1});
    (void)state;
    assert_int_equal(with_origin(g, "http://localhost:8080"), 200); /* its own page */
    assert_int_equal(with_origin(g, "http://localhost:3000"), 200);
    assert_int_equal(with_origin(g, "https://127.0.0.1"), 200);
    assert_int_equal(with_origin(g, "http://[::1]:5173"), 200);
    assert_int_equal(with_origin(g, "https://chat.example"), 200);
    static const char *const refused[] = {
        "https://evil.example",
        "null",
        "",
        "https://chat.example.evil",
        "http://chat.example",
        "https://chat.example:8443",
        "http://localhost.evil.example",
        "http://localhost:80@evil:80",
        "chrome-extension://abcdef",
        "file://",
        "localhost",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (with_origin(g, refused[i]) != 403) fail_msg("\"%s\" passes", refused[i]);
    struct guard_pass pass;
    struct guard_view view = plain;
    view.origin = "https://evil.example";
    assert_int_equal(decided(g, view, true, &pass), 403); /* open routes too */
    guard_close(g);
}

static void test_origins_that_may_read_get_the_fields(void **state)
{
    struct guard *g = opened((struct guard_options){.is_local = true});
    struct guard_pass pass;
    struct guard_view view = plain;
    (void)state;
    assert_int_equal(decided(g, view, false, &pass), 200);
    assert_int_equal(pass.n_fields, 0);
    view.origin = "http://localhost:3000";
    assert_int_equal(decided(g, view, false, &pass), 200);
    assert_string_equal(field(&pass, "Access-Control-Allow-Origin"), "http://localhost:3000");
    assert_string_equal(field(&pass, "Vary"), "Origin");
    guard_close(g);
}

static void test_a_foreign_origin_with_a_key_gets_no_fields(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass pass;
    struct guard_view view = plain;
    (void)state;
    view.origin = "https://evil.example";
    view.authorization = "Bearer first";
    assert_int_equal(decided(g, view, false, &pass), 200);
    assert_null(field(&pass, "Access-Control-Allow-Origin"));
    guard_close(g);
}

static void test_preflights_need_no_key(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass pass;
    struct guard_view view = {.method = "OPTIONS",
                              .host = "localhost",
                              .origin = "http://localhost:3000",
                              .asked_method = "POST",
                              .asked_headers = "authorization, x-stainless-os",
                              .asked_network = "true"};
    (void)state;
    assert_false(guard_decide(g, &view, false, &pass));
    assert_int_equal(pass.error.status, 0);
    assert_string_equal(field(&pass, "Access-Control-Allow-Headers"),
                        "authorization, x-stainless-os");
    assert_non_null(field(&pass, "Access-Control-Allow-Methods"));
    assert_non_null(field(&pass, "Access-Control-Allow-Private-Network"));
    assert_true(pass.n_fields < GUARD_FIELDS_MAX);
    view.asked_headers = "a\r\nSet-Cookie: x";
    assert_false(guard_decide(g, &view, false, &pass));
    assert_string_equal(field(&pass, "Access-Control-Allow-Headers"),
                        "authorization, content-type, x-api-key");
    view.origin = "https://evil.example";
    assert_false(guard_decide(g, &view, false, &pass));
    assert_int_equal(pass.error.status, 0);
    assert_int_equal(pass.n_fields, 0);
    guard_close(g);
}

static int with_key(const struct guard *g, const char *authorization, const char *x_api_key,
                    struct guard_pass *pass)
{
    struct guard_view view = plain;
    view.authorization = authorization;
    view.x_api_key = x_api_key;
    return decided(g, view, false, pass);
}

static void test_keys_open_what_is_closed(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass pass, other;
    (void)state;
    assert_int_equal(with_key(g, "Bearer first", NULL, &pass), 200);
    assert_int_equal(with_key(g, "bearer  first", NULL, &pass), 200);
    assert_int_equal(with_key(g, NULL, "zweiter-schl\xc3\xbcssel", &other), 200);
    assert_true(pass.salt != other.salt && pass.fairness != other.fairness);
    assert_true(pass.salt && pass.fairness && pass.salt != pass.fairness);
    /* Some clients send both, and one of them is for somebody else. */
    assert_int_equal(with_key(g, "Bearer dummy", "first", &other), 200);
    assert_true(pass.salt == other.salt && pass.fairness == other.fairness);
    assert_int_equal(with_key(g, NULL, NULL, &pass), 401);
    assert_string_equal(field(&pass, "WWW-Authenticate"), "Bearer");
    assert_string_equal(pass.error.type, "authentication_error");
    static const char *const wrong[] = {"Bearer ",       "Bearer",        "Bearer firs",
                                        "Bearer first ", "Bearer firstx", "first",
                                        "Basic first",   "Bearer First",  ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (with_key(g, wrong[i], NULL, &pass) != 401) fail_msg("\"%s\" passes", wrong[i]);
    assert_int_equal(decided(g, plain, true, &pass), 200); /* an open route */
    guard_close(g);
}

static void test_huge_and_odd_keys_are_only_wrong(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass pass;
    char *huge = malloc((1 << 20) + 16);
    (void)state;
    memcpy(huge, "Bearer ", 7);
    memset(huge + 7, 'k', 1 << 20);
    huge[7 + (1 << 20)] = '\0';
    assert_int_equal(with_key(g, huge, NULL, &pass), 401);
    assert_int_equal(with_key(g, "Bearer \xff\xfe\xc0\x80", NULL, &pass), 401);
    assert_int_equal(with_key(g, "Bearer \xf0\x9f\x94\x91", NULL, &pass), 401);
    free(huge);
    guard_close(g);
}

static void test_a_key_in_the_query_is_refused_by_name(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass pass;
    struct guard_view view = plain;
    (void)state;
    view.query_key = "api_key";
    view.authorization = "Bearer first";
    assert_int_equal(decided(g, view, false, &pass), 400);
    assert_non_null(strstr(pass.error.message, "\"api_key\""));
    guard_close(g);
}

static void test_requests_of_a_key_are_counted(void **state)
{
    struct guard *g = with_keys();
    struct guard_pass first, second, none = {0};
    (void)state;
    assert_int_equal(with_key(g, "Bearer first", NULL, &first), 200);
    assert_int_equal(with_key(g, NULL, "zweiter-schl\xc3\xbcssel", &second), 200);
    for (int round = 0; round < 3; round++) {
        assert_true(guard_enter(g, &first));
        assert_true(guard_enter(g, &first));
        assert_false(guard_enter(g, &first));
        assert_int_equal(first.error.status, 429);
        assert_true(first.error.retry_after > 0);
        assert_true(guard_enter(g, &second));
        guard_leave(g, &first);
        assert_true(guard_enter(g, &first));
        guard_leave(g, &first);
        guard_leave(g, &first);
        guard_leave(g, &second);
    }
    for (int i = 0; i < 5; i++) assert_true(guard_enter(g, &none)); /* no key, no limit */
    guard_close(g);
}

static int opens(const struct scratch *s, const char *text, struct keys *keys,
                 struct carat_error *err)
{
    char path[512];
    scratch_write(s, "keys", text, strlen(text));
    return keys_open(keys, NULL, 0, scratch_file(s, "keys", path), err);
}

static bool has(const struct keys *k, const char *key)
{
    uint64_t id;
    return keys_find(k, key, strlen(key), &id);
}

static void test_keys_come_from_a_file_and_are_read_again(void **state)
{
    struct scratch s;
    struct keys k;
    struct carat_error err = {0};
    uint64_t before, after;
    (void)state;
    scratch_open(&s);
    assert_int_equal(opens(&s, "# team\n\n  one \r\ntwo\nthree # four", &k, &err), CARAT_OK);
    assert_true(has(&k, "one") && has(&k, "two") && has(&k, "three # four"));
    assert_false(has(&k, "# team") || has(&k, "") || has(&k, "three"));
    assert_true(keys_find(&k, "two", 3, &before));
    scratch_write(&s, "keys", "two\n", 4);
    assert_int_equal(keys_reload(&k, &err), CARAT_OK);
    assert_true(keys_find(&k, "two", 3, &after));
    assert_true(before == after);
    assert_false(has(&k, "one"));
    scratch_write(&s, "keys", "# nothing\n", 10); /* must not open the server */
    assert_int_equal(keys_reload(&k, &err), CARAT_EUSAGE);
    assert_true(has(&k, "two"));
    scratch_write(&s, "keys", "a\0b", 3);
    assert_int_equal(keys_reload(&k, &err), CARAT_EUSAGE);
    assert_true(has(&k, "two"));
    scratch_close(&s);
    assert_int_equal(keys_reload(&k, &err), CARAT_EIO);
    assert_true(has(&k, "two"));
    keys_close(&k);
}

static void test_empty_keys_and_files_do_not_open(void **state)
{
    static const char *const empty[] = {""};
    struct scratch s;
    struct keys k;
    struct carat_error err = {0};
    (void)state;
    assert_int_equal(keys_open(&k, empty, 1, NULL, &err), CARAT_EUSAGE);
    assert_int_equal(keys_open(&k, NULL, 0, "/nonexistent/keys", &err), CARAT_EIO);
    scratch_open(&s);
    assert_int_equal(opens(&s, "", &k, &err), CARAT_EUSAGE);
    scratch_close(&s);
}

static void test_what_surrounds_a_key_does_not_count(void **state)
{
    static const char *const given[] = {"from-a-secret\n", "\t padded \r\n"};
    struct scratch s;
    struct keys k;
    struct carat_error err = {0};
    (void)state;
    assert_int_equal(keys_open(&k, given, 2, NULL, &err), CARAT_OK);
    assert_true(has(&k, "from-a-secret") && has(&k, "padded"));
    keys_close(&k);
    scratch_open(&s); /* some editors write a mark in front */
    assert_int_equal(opens(&s, "\xEF\xBB\xBFone\r\ntwo\r\n", &k, &err), CARAT_OK);
    assert_true(has(&k, "one") && has(&k, "two"));
    keys_close(&k);
    scratch_close(&s);
}

static void test_a_key_that_no_request_can_bring_is_refused(void **state)
{
    static const char *const odd[] = {"one\ntwo", "a\x01z", "a\x7fz", " \n"};
    struct scratch s;
    struct keys k;
    struct carat_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(keys_open(&k, &odd[i], 1, NULL, &err), CARAT_EUSAGE);
    scratch_open(&s);
    assert_int_equal(opens(&s, "one\na\x1bz\n", &k, &err), CARAT_EUSAGE);
    assert_non_null(strstr(err.message, "line 2"));
    scratch_close(&s);
}

static int opens_with(const char *host, const char *origin)
{
    struct guard *g = NULL;
    struct carat_error err = {0};
    const struct guard_options options = {.allowed_hosts = &host,
                                          .n_allowed_hosts = host ? 1 : 0,
                                          .origins = &origin,
                                          .n_origins = origin ? 1 : 0};
    const int status = guard_open(&g, &options, &err);
    if (status != CARAT_OK) {
        assert_non_null(strstr(err.message, host ? "--allowed-host" : "--cors-origin"));
        assert_non_null(strstr(err.hint, "chat.example.org"));
    }
    guard_close(g);
    return status;
}

static void test_hosts_and_origins_that_nobody_has_do_not_open(void **state)
{
    (void)state;
    static const char *const hosts[] = {"chat.example", "10.0.0.5", "fe80::1", "localhost.", "*"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        assert_int_equal(opens_with(hosts[i], NULL), CARAT_OK);
    static const char *const no_hosts[] = {"https://chat.example", "chat.example:8080",
                                           "*.chat.example", "a b", "[fe80::1]"};
    for (size_t i = 0; i < sizeof no_hosts / sizeof *no_hosts; i++)
        assert_int_equal(opens_with(no_hosts[i], NULL), CARAT_EUSAGE);
    static const char *const origins[] = {"https://chat.example",  "http://10.0.0.5:3000", "null",
                                          "https://chat.example/", "app://obsidian.md",    "*"};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        assert_int_equal(opens_with(NULL, origins[i]), CARAT_OK);
    static const char *const no_origins[] = {"chat.example",
                                             "x",
                                             "https://",
                                             "://chat.example",
                                             "https://*.example",
                                             "https://chat.example/page",
                                             "app://*",
                                             "https://a@b",
                                             ""};
    for (size_t i = 0; i < sizeof no_origins / sizeof *no_origins; i++)
        assert_int_equal(opens_with(NULL, no_origins[i]), CARAT_EUSAGE);
}

static void test_failing_memory_is_reported_and_nothing_leaks(void **state)
{
    static const char *const keys[] = {"first"}, *const names[] = {"a", "b"};
    static const char *const origins[] = {"http://a", "http://b"};
    const long live = mem_blocks_live();
    const struct guard_options options = {.keys = keys,
                                          .n_keys = 1,
                                          .allowed_hosts = names,
                                          .n_allowed_hosts = 2,
                                          .origins = origins,
                                          .n_origins = 2};
    bool has_failed = true;
    (void)state;
    for (long n = 0; has_failed; n++) {
        struct guard *g = NULL;
        struct carat_error err = {0};
        (void)mem_fail_after(n);
        const int status = guard_open(&g, &options, &err);
        has_failed = mem_fail_after(-1) != 0;
        assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
        guard_close(g);
        assert_int_equal(mem_blocks_live(), live);
    }
}

static int starts(const char *host, const char *unix_path, bool has_keys, bool is_insecure)
{
    const struct http_options o = {.host = host, .unix_path = unix_path, .listen_fd = -1};
    struct carat_error err = {0};
    const int status = guard_allows_start(&o, has_keys, is_insecure, &err);
    if (status != CARAT_OK) assert_non_null(strstr(err.hint, "--insecure"));
    return status;
}

static void test_only_this_machine_is_served_without_keys(void **state)
{
    (void)state;
    static const char *const local[] = {"127.0.0.1", "localhost", "::1", "127.9.9.9"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        assert_int_equal(starts(local[i], NULL, false, false), CARAT_OK);
    static const char *const others[] = {"0.0.0.0", "::", "192.168.1.7", "box.example", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(starts(others[i], NULL, false, false), CARAT_EUSAGE);
        assert_int_equal(starts(others[i], NULL, true, false), CARAT_OK);
        assert_int_equal(starts(others[i], NULL, false, true), CARAT_OK);
    }
    assert_int_equal(starts("127.0.0.1", "/run/carat.sock", false, false), CARAT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_keys_the_host_must_be_local),
        cmocka_unit_test(test_addresses_are_hosts_when_others_can_connect),
        cmocka_unit_test(test_with_keys_or_on_unix_sockets_any_host_passes),
        cmocka_unit_test(test_without_keys_pages_of_other_sites_are_refused),
        cmocka_unit_test(test_origins_that_may_read_get_the_fields),
        cmocka_unit_test(test_a_foreign_origin_with_a_key_gets_no_fields),
        cmocka_unit_test(test_preflights_need_no_key),
        cmocka_unit_test(test_keys_open_what_is_closed),
        cmocka_unit_test(test_huge_and_odd_keys_are_only_wrong),
        cmocka_unit_test(test_a_key_in_the_query_is_refused_by_name),
        cmocka_unit_test(test_requests_of_a_key_are_counted),
        cmocka_unit_test(test_keys_come_from_a_file_and_are_read_again),
        cmocka_unit_test(test_empty_keys_and_files_do_not_open),
        cmocka_unit_test(test_what_surrounds_a_key_does_not_count),
        cmocka_unit_test(test_a_key_that_no_request_can_bring_is_refused),
        cmocka_unit_test(test_hosts_and_origins_that_nobody_has_do_not_open),
        cmocka_unit_test(test_failing_memory_is_reported_and_nothing_leaks),
        cmocka_unit_test(test_only_this_machine_is_served_without_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
