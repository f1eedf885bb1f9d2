/* Which handler requests get, and that none is open by omission. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/routes.h"

static const struct route *find(const char *method, const char *path, int *status)
{
    char allow[ROUTES_ALLOW_MAX];
    const struct route *found = routes_find(method, path, status, allow);
    assert_true(strlen(allow) < sizeof allow);
    assert_int_equal(*status, found ? 200 : allow[0] ? 405 : 404);
    return found;
}

static void open_routes_are_health_and_the_page(void **state)
{
    (void)state;
    static const char *const open[] = {"/health", "/v1/health", "/health/live",  "/health/ready",
                                       "/",       "/ui/app.js", "/openapi.yaml", "/favicon.ico"};
    static const char *const closed[] = {"/metrics",  "/v1/models", "/v1/models/x",
                                         "/models",   "/props",     "/slots",
                                         "/api/tags", "/api/ps",    "/api/version"};
    int status;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        const struct route *found = find("GET", open[i], &status);
        assert_non_null(found);
        assert_true(found->is_open);
    }
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        const struct route *found = find("GET", closed[i], &status);
        assert_non_null(found);
        assert_false(found->is_open);
    }
}

static void what_computes_is_closed_and_has_an_api(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum api api;
    } all[] = {{"/v1/chat/completions", API_CHAT}, {"/v1/completions", API_COMPLETIONS},
               {"/v1/responses", API_RESPONSES},   {"/v1/messages", API_MESSAGES},
               {"/api/chat", API_OLLAMA_CHAT},     {"/api/generate", API_OLLAMA_GENERATE}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int status;
        const struct route *found = find("POST", all[i].path, &status);
        assert_non_null(found);
        assert_int_equal(found->kind, ROUTE_ANSWER);
        assert_int_equal(found->part, all[i].api);
        assert_false(found->is_open);
        assert_null(find("GET", all[i].path, &status));
        assert_int_equal(status, 405);
    }
}

static void get_answers_head_too(void **state)
{
    (void)state;
    char allow[ROUTES_ALLOW_MAX];
    int status;
    assert_ptr_equal(find("HEAD", "/health", &status), find("GET", "/health", &status));
    assert_null(routes_find("POST", "/health", &status, allow));
    assert_string_equal(allow, "GET, HEAD");
    assert_null(find("HEAD", "/v1/messages", &status));
}

static void what_is_not_done_is_not_done_by_any_method(void **state)
{
    (void)state;
    static const char *const absent[] = {"/v1/files", "/v1/batches", "/v1/messages/batches",
                                         "/api/delete"};
    static const char *const methods[] = {"GET", "HEAD", "POST", "DELETE"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        for (size_t k = 0; k < sizeof methods / sizeof *methods; k++) {
            int status;
            const struct route *found = find(methods[k], absent[i], &status);
            assert_non_null(found);
            assert_int_equal(found->kind, ROUTE_ABSENT);
        }
    }
}

static void paths_are_compared_whole(void **state)
{
    (void)state;
    static const char *const missing[] = {"",
                                          "/healthz",
                                          "/health/",
                                          "/v1/model",
                                          "/v1/models/",
                                          "/ui/",
                                          "/v1/chat",
                                          "//",
                                          "health",
                                          "/v1/chat/completions/",
                                          "/HEALTH",
                                          "/metrics/x",
                                          "/v1/messages/x"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        int status;
        assert_null(find("GET", missing[i], &status));
        assert_int_equal(status, 404);
    }
}

static void errors_speak_the_words_of_the_path(void **state)
{
    (void)state;
    assert_int_equal(routes_family("/v1/messages/count_tokens"), FAMILY_ANTHROPIC);
    assert_int_equal(routes_family("/api/nothing"), FAMILY_OLLAMA);
    assert_int_equal(routes_family("/v1/chat/completions"), FAMILY_OPENAI);
    assert_int_equal(routes_family("/"), FAMILY_OPENAI);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_routes_are_health_and_the_page),
        cmocka_unit_test(what_computes_is_closed_and_has_an_api),
        cmocka_unit_test(get_answers_head_too),
        cmocka_unit_test(what_is_not_done_is_not_done_by_any_method),
        cmocka_unit_test(paths_are_compared_whole),
        cmocka_unit_test(errors_speak_the_words_of_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
