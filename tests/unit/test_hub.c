/* Names of models, what registries answer, and which files are chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "hub/answers.h"
#include "hub/choose.h"
#include "hub/name.h"
#include "hub/store.h"
#include "hub/url.h"
#include "support/scratch.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* ---- Names ------------------------------------------------------------------------------ */

/* Reads a name and writes it as it can be typed. */
static void expect_name(const char *text, enum hub_kind kind, const char *wanted)
{
    struct hub_name name, again;
    struct carat_error err = {0};
    struct buf shown = {0};
    assert_int_equal(hub_name_read(text, &name, &err), CARAT_OK);
    assert_int_equal(name.kind, kind);
    hub_name_add(&name, &shown);
    assert_string_equal(buf_text(&shown), wanted);
    if (kind != HUB_NONE) {
        assert_int_equal(hub_name_read(buf_text(&shown), &again, &err), CARAT_OK);
        assert_int_equal(again.kind, kind);
        assert_string_equal(again.tag, name.tag);
    }
    buf_deinit(&shown);
}

static void names_are_read_in_every_spelling(void **state)
{
    (void)state;
    expect_name("hf:user/repo", HUB_HF, "hf:user/repo");
    expect_name("hf:user/repo:Q8_0", HUB_HF, "hf:user/repo:Q8_0");
    expect_name("hf:u/r/folder/m.gguf", HUB_HF, "hf:u/r/folder/m.gguf");
    expect_name("hf:u/r:Q8_0/m.gguf", HUB_HF, "hf:u/r:Q8_0/m.gguf");
    expect_name("hf.co/u/r:q4_k_m", HUB_HF, "hf:u/r:q4_k_m");
    expect_name("huggingface.co/u/r", HUB_HF, "hf:u/r");
    expect_name("ollama:hf.co/u/r:Q8_0", HUB_HF, "hf:u/r:Q8_0");
    expect_name("https://huggingface.co/u/r", HUB_HF, "hf:u/r");
    expect_name("https://huggingface.co/u/r/", HUB_HF, "hf:u/r");
    expect_name("https://hf.co/u/r/resolve/main/m.gguf?download=true", HUB_HF, "hf:u/r/m.gguf");
    expect_name("https://huggingface.co/u/r/tree/main", HUB_HF, "hf:u/r");
    expect_name("ollama:gemma4", HUB_OLLAMA, "ollama:gemma4:latest");
    expect_name("ollama:gemma4:e2b", HUB_OLLAMA, "ollama:gemma4:e2b");
    expect_name("ollama:user/m:t", HUB_OLLAMA, "ollama:user/m:t");
    expect_name("https://h.example/a/m.gguf?key=secret#x", HUB_URL, "https://h.example/a/m.gguf");
    expect_name("HTTPS://h/m.gguf", HUB_NONE, "");
    expect_name("demo", HUB_NONE, "");
    expect_name("./hf:u/r", HUB_NONE, "");
    expect_name("", HUB_NONE, "");
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "hf:",
        "hf:u",
        "hf:u/",
        "hf:/r",
        "hf:../r",
        "hf:u/..",
        "hf:u/r:",
        "hf:u/r:a/b",
        "hf:u/r/../x.gguf",
        "hf:u/r//x.gguf",
        "hf:u/r/x.bin",
        "hf:u/r/.gguf",
        "hf:u/r\n",
        "hf:u/r:Q 4",
        "hf:u/r/x\x01.gguf",
        "ollama:",
        "ollama:a/b/c",
        "ollama:a:",
        "ollama:a:../b",
        "ollama:.a",
        "https://",
        "https://h",
        "https://h/",
        "https://h/x",
        "https://h/../x.gguf",
        "https://u@h/x.gguf",
        "https://h:0/x.gguf",
        "https://h:99999/x.gguf",
        "https://h\\/x.gguf",
        "http://[::1/x.gguf",
        "https://h/x.gguf\r\nHost: x",
        "https://huggingface.co/u",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hub_name name;
        struct carat_error err = {0};
        if (hub_name_read(wrong[i], &name, &err) != CARAT_EUSAGE) fail_msg("%s", wrong[i]);
        assert_non_null(strstr(err.message, "expected"));
    }
    struct hub_name name = {.kind = HUB_HF};
    assert_int_equal(hub_name_set_revision(&name, "refs/pr/1", NULL), CARAT_OK);
    assert_int_equal(hub_name_set_revision(&name, "a/../b", NULL), CARAT_EUSAGE);
    assert_int_equal(hub_name_set_revision(&name, "", NULL), CARAT_EUSAGE);
}

static void long_names_are_refused_and_never_cut(void **state)
{
    (void)state;
    char text[2 * URL_MAX];
    for (size_t n = 1; n < sizeof text - 20; n = n * 2 + 1) {
        for (int form = 0; form < 4; form++) {
            static const char *const heads[] = {"hf:u/", "hf:u/r/", "ollama:x:", "https://h/"};
            struct hub_name name;
            size_t head = strlen(heads[form]);
            memcpy(text, heads[form], head);
            memset(text + head, 'a', n);
            memcpy(text + head + n, ".gguf", 6);
            int status = hub_name_read(text, &name, NULL);
            struct buf shown = {0};
            if (status == CARAT_OK) hub_name_add(&name, &shown);
            if (status == CARAT_OK) assert_string_equal(buf_text(&shown), text);
            assert_true(status == CARAT_OK || n > 60);
            buf_deinit(&shown);
        }
    }
}

/* ---- Addresses -------------------------------------------------------------------------- */

static void addresses_are_compared_by_origin(void **state)
{
    (void)state;
    struct url a, b;
    assert_true(url_read("https://Huggingface.co", &a));
    assert_true(url_read("https://huggingface.co:443/x", &b));
    assert_true(url_is_same_origin(&a, &b));
    static const char *const others[] = {"http://huggingface.co/", "https://huggingface.co:444/",
                                         "https://huggingface.co.example/",
                                         "https://cdn.huggingface.co/"};
    for (int i = 0; i < 4; i++) {
        assert_true(url_read(others[i], &b));
        assert_false(url_is_same_origin(&a, &b));
    }
    static const char *const loopback[] = {"http://localhost:1/", "http://127.0.0.1:80",
                                           "http://[::1]/"};
    for (int i = 0; i < 3; i++) assert_true(url_read(loopback[i], &a) && url_is_loopback(&a));
    static const char *const outside[] = {"http://127.0.0.1.example/", "http://localhost.x/",
                                          "http://128.0.0.1/"};
    for (int i = 0; i < 3; i++) assert_true(url_read(outside[i], &a) && !url_is_loopback(&a));
    assert_false(url_read("https://a b/", &a));
    assert_false(url_read("file:///etc/passwd", &a));
}

static void what_may_be_secret_is_not_shown(void **state)
{
    (void)state;
    struct buf shown = {0};
    url_add_shown(&shown, "https://user:word@host/path?token=secret#more");
    assert_string_equal(buf_text(&shown), "https://host/path");
    buf_clear(&shown);
    url_add_escaped(&shown, "a b/\xC3\xA9?#%", "/");
    assert_string_equal(buf_text(&shown), "a%20b/%C3%A9%3F%23%25");
    buf_deinit(&shown);
}

/* ---- Choosing --------------------------------------------------------------------------- */

static void add(struct hub_files *files, const char *names)
{
    char name[128];
    int n = 0;
    for (uint64_t size = 1; sscanf(names, "%127s%n", name, &n) == 1; size++) {
        assert_int_equal(hub_files_add(files, name, strlen(name), size, NULL, NULL), CARAT_OK);
        names += n;
    }
}

/* The names that are chosen, or "" and how many there were to choose from. */
static void expect_chosen(const char *names, const char *tag, const char *file, const char *wanted,
                          size_t n_left)
{
    struct hub_files files = {0};
    struct buf chosen = {0};
    add(&files, names);
    int status = hub_choose(&files, tag, file, NULL);
    for (size_t i = 0; i < files.n && status == CARAT_OK; i++)
        buf_printf(&chosen, "%s%s", i ? " " : "", files.at[i].path);
    assert_string_equal(buf_text(&chosen), wanted);
    assert_int_equal(files.n, n_left);
    hub_files_free(&files);
    buf_deinit(&chosen);
}

static void the_whole_quantisation_goes_first(void **state)
{
    (void)state;
    static const char names[] = "m-Q4_K_M.gguf m-UD-Q4_K_M.gguf m-IQ4_K_M.gguf m-Q8_0.gguf";
    expect_chosen(names, "", "", "m-Q4_K_M.gguf", 1);
    expect_chosen(names, "q4_k_m", "", "m-Q4_K_M.gguf", 1);
    expect_chosen(names, "UD-Q4_K_M", "", "m-UD-Q4_K_M.gguf", 1);
    expect_chosen(names, "Q4_K", "", "", 4);
    expect_chosen(names, "", "m-Q8_0.gguf", "m-Q8_0.gguf", 1);
    expect_chosen("m-UD-Q4_K_M.gguf", "Q4_K_M", "", "m-UD-Q4_K_M.gguf", 1);
    expect_chosen("Q8_0/m.gguf x/m.gguf", "Q8_0", "", "Q8_0/m.gguf", 1);
    expect_chosen("a-Q8_0.gguf b-Q8_0.gguf", "Q8_0", "", "", 2);
    expect_chosen("m-qat-q4_0.gguf", "Q4_0", "", "m-qat-q4_0.gguf", 1);
    expect_chosen("", "Q4_0", "", "", 0);
}

static void splits_are_whole_or_not_there(void **state)
{
    (void)state;
    static const char split[] = "m-Q8_0-00002-of-00002.gguf x.gguf m-Q8_0-00001-of-00002.gguf";
    static const char both[] = "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf";
    expect_chosen(split, "Q8_0", "", both, 2);
    expect_chosen(split, "", "m-Q8_0-00002-of-00002.gguf", both, 2);
    expect_chosen(split, "Q4_0", "", "", 2);
    expect_chosen("m-Q8_0-00001-of-00002.gguf", "Q8_0", "", "", 0);
    expect_chosen("m-Q8_0-00001-of-00003.gguf m-Q8_0-00003-of-00003.gguf", "Q8_0", "", "", 0);
    expect_chosen("m-Q8_0-00000-of-00001.gguf m-Q8_0-99999-of-99999.gguf", "F16", "", "", 1);
}

static void helpers_are_never_chosen_but_drafters_by_their_name(void **state)
{
    (void)state;
    expect_chosen("mmproj-m-Q8_0.gguf m-imatrix-Q8_0.gguf MMPROJ-F16.gguf", "Q8_0", "", "", 0);
    expect_chosen("mmproj-m-Q8_0.gguf", "", "mmproj-m-Q8_0.gguf", "", 0);
    expect_chosen("m-it-Q8_0.gguf MTP/m-it-MTP-Q8_0.gguf mtp-m-it-Q8_0.gguf", "Q8_0", "",
                  "m-it-Q8_0.gguf", 1);
    expect_chosen("m-it-Q8_0.gguf MTP/m-it-MTP-Q8_0.gguf", "", "MTP/m-it-MTP-Q8_0.gguf",
                  "MTP/m-it-MTP-Q8_0.gguf", 1);
    expect_chosen("m-it-assistant.Q8_0.gguf", "", "m-it-assistant.Q8_0.gguf",
                  "m-it-assistant.Q8_0.gguf", 1);
    assert_true(hub_is_model("imatrix/m-Q8_0.gguf"));
    assert_true(hub_is_model("my-assistant-Q8_0.gguf")); /* a model of somebody's own */
    assert_false(hub_is_model("a/mmproj-F16.gguf"));
    assert_false(hub_is_model("m-00002-of-00002.gguf"));
}

static void a_repositorys_drafter_is_the_tag_mtp(void **state)
{
    (void)state;
    static const char names[] = "m-it-Q4_0.gguf mtp-m-it.gguf MTP/m-it-MTP-BF16.gguf "
                                "MTP/m-it-MTP-Q8_0.gguf MTP/m-it-F16.gguf mmproj-mtp.gguf";
    expect_chosen(names, "MTP", "", "mtp-m-it.gguf", 1);
    expect_chosen(names, "mtp", "", "mtp-m-it.gguf", 1);
    expect_chosen(names, "MTP-Q8_0", "", "MTP/m-it-MTP-Q8_0.gguf", 1);
    expect_chosen(names, "mtp-f16", "", "MTP/m-it-F16.gguf", 1);
    expect_chosen(names, "MTP-Q4_K_M", "", "", 0);
    expect_chosen(names, "", "MTP/m-it-F16.gguf", "MTP/m-it-F16.gguf", 1);
    expect_chosen("MTP/m-MTP-BF16.gguf MTP/m-MTP-Q8_0.gguf", "MTP", "", "MTP/m-MTP-Q8_0.gguf", 1);
    /* The smallest: sizes here rise with the places. */
    expect_chosen("m-it-assistant-F16.gguf m-it-assistant-Q4_0.gguf", "MTP", "",
                  "m-it-assistant-F16.gguf", 1);
    expect_chosen("m-Q8_0.gguf", "MTP", "", "", 0);
    expect_chosen("mtp-m-00001-of-00002.gguf mtp-m-00002-of-00002.gguf", "MTP", "", "", 0);
    /* A repository of drafters alone is like one of models. */
    static const char alone[] = "m-it-assistant-Q8_0.gguf m-it-assistant-Q4_K_M.gguf";
    expect_chosen(alone, "", "", "m-it-assistant-Q4_K_M.gguf", 1);
    expect_chosen(alone, "Q8_0", "", "m-it-assistant-Q8_0.gguf", 1);
}

static void quantisations_are_read_from_names(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"m-Q4_K_M.gguf", "Q4_K_M"},
        {"m-ud-q2_k_xl.gguf", "UD-Q2_K_XL"},
        {"m.f16.gguf", "F16"},
        {"m-BF16-00001-of-00002.gguf", "BF16"},
        {"m-MXFP4_MOE.gguf", "MXFP4_MOE"},
        {"m-IQ4_NL.gguf", "IQ4_NL"},
        {"gemma-4.gguf", ""},
        {"Q8_0.gguf", ""},
        {"m-it.gguf", ""},
        {"m-Quick.gguf", ""},
        {"x", ""},
        {"-Q8_0.gguf", "Q8_0"},
    };
    char tag[HUB_TAG_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(hub_tag_of_path(rows[i][0], tag), rows[i][1]);
}

/* ---- Answers ---------------------------------------------------------------------------- */

#ifdef CARAT_HAVE_JSON

static int read_tree(const char *text, struct hub_files *files)
{
    struct carat_error err = {0};
    int status = hub_tree_read(text, strlen(text), files, &err);
    assert_true(status == CARAT_OK || err.message[0]);
    return status;
}

static void lists_of_files_are_read(void **state)
{
    (void)state;
    struct hub_files files = {0};
    assert_int_equal(read_tree("[{\"type\":\"directory\",\"path\":\"d\",\"size\":0},"
                               "{\"type\":\"file\",\"path\":\"README.md\",\"size\":-1},"
                               "{\"type\":\"file\",\"path\":\"d/a.gguf\",\"size\":134,"
                               "\"lfs\":{\"oid\":\"" SHA "\",\"size\":77,\"pointerSize\":134}},"
                               "{\"type\":\"file\",\"path\":\"b.GGUF\",\"size\":9}]",
                               &files),
                     CARAT_OK);
    assert_int_equal(files.n, 2);
    assert_string_equal(files.at[0].path, "d/a.gguf");
    assert_string_equal(files.at[0].sha256, SHA);
    assert_int_equal(files.at[0].size, 77);
    assert_string_equal(files.at[1].sha256, "");
    assert_int_equal(hub_files_bytes(&files), 86);
    hub_files_free(&files);
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "{}",
        "[1]",
        "[{\"type\":\"file\",\"path\":\"../a.gguf\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"/a.gguf\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a\\u0000/../b.gguf\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a\\nb.gguf\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":-1}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1.5}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1,\"lfs\":[]}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1,\"lfs\":{\"oid\":\"12\",\"size\":1}}]",
        "[{\"type\":\"file\",\"path\":7,\"size\":1}]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hub_files files = {0};
        if (read_tree(wrong[i], &files) != CARAT_ENETWORK) fail_msg("%s", wrong[i]);
        hub_files_free(&files);
    }
}

static void commits_and_manifests_are_read(void **state)
{
    (void)state;
    struct hub_files files = {0};
    char commit[HUB_COMMIT_HEX + 1];
    char text[512];
    snprintf(text, sizeof text, "{\"sha\":\"%.40s\"}", SHA);
    assert_int_equal(hub_commit_read(text, strlen(text), commit, NULL), CARAT_OK);
    assert_int_equal(strncmp(commit, SHA, 40), 0);
    assert_int_equal(hub_commit_read("{}", 2, commit, NULL), CARAT_ENETWORK);
    snprintf(text, sizeof text,
             "{\"layers\":[{\"mediaType\":\"x\"},{\"mediaType\":"
             "\"application/vnd.ollama.image.model\",\"digest\":\"sha256:%s\",\"size\":5}]}",
             SHA);
    assert_int_equal(ollama_manifest_read(text, strlen(text), "m.gguf", &files, NULL), CARAT_OK);
    assert_string_equal(files.at[0].sha256, SHA);
    hub_files_free(&files);
    assert_int_equal(ollama_manifest_read("{\"layers\":[]}", 13, "m", &files, NULL),
                     CARAT_ENETWORK);
    hub_files_free(&files);
}

static void missing_memory_is_an_error_and_nothing_is_lost(void **state)
{
    (void)state;
    static const char text[] = "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1}]";
    long before = mem_blocks_live();
    for (int n = 0; n < 12; n++) {
        struct hub_files files = {0};
        mem_fail_after(n);
        int status = hub_tree_read(text, sizeof text - 1, &files, NULL);
        bool has_failed = mem_fail_after(-1);
        assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
        hub_files_free(&files);
        assert_int_equal(mem_blocks_live(), before);
    }
}

#endif

/* ---- Stores ----------------------------------------------------------------------------- */

static void make_file(const char *store, const char *path)
{
    char whole[768], *slash = whole + strlen(store);
    snprintf(whole, sizeof whole, "%s/%s", store, path);
    while ((slash = strchr(slash + 1, '/'))) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs("GGUF", file);
    fclose(file);
}

static const char *found(const struct store *store, const char *text, bool takes_only,
                         struct buf *path)
{
    struct hub_name name;
    assert_int_equal(hub_name_read(text, &name, NULL), CARAT_OK);
    bool is_found = store_find(store, &name, takes_only, path);
    return is_found ? buf_text(path) + strlen(store->folder) + 1 : "";
}

static void models_are_found_where_they_lie(void **state)
{
    (void)state;
    static const char *const files[] = {
        "hf/u/r/aaaaaaaaaaaa/m-Q8_0.gguf", "hf/u/s/bbbbbbbbbbbb/x/m-Q4_K_M.gguf",
        "hf/u/p/cccccccccccc/m-Q4_K_M-00001-of-00002.gguf",
        "ollama/library/g/dddddddddddd/g-e2b.gguf", "url/h.example/a/m.gguf"};
    static const struct {
        const char *name;
        bool takes_only;
        int file; /* -1: none */
    } rows[] = {
        {"hf:u/r:q8_0", false, 0},
        {"hf:u/r", false, -1},
        {"hf:u/r", true, 0},
        {"hf:u/r:Q6_K", true, -1},
        {"hf:u/s", false, 1},
        {"hf:u/s/x/m-Q4_K_M.gguf", false, 1},
        {"hf:u/p", true, -1},
        {"ollama:g:e2b", false, 3},
        {"ollama:g", true, -1},
        {"https://h.example/a/m.gguf?x", false, 4},
        {"https://h.example/m.gguf", true, -1},
    };
    struct scratch scratch;
    scratch_open(&scratch);
    struct store store = {STORE_OWN, scratch.path};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) make_file(scratch.path, files[i]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf path = {0};
        const char *wanted = rows[i].file < 0 ? "" : files[rows[i].file];
        assert_string_equal(found(&store, rows[i].name, rows[i].takes_only, &path), wanted);
        buf_deinit(&path);
        long before = mem_blocks_live();
        for (int n = 0; n < 60; n++) { /* without memory nothing else is found */
            mem_fail_after(n);
            const char *got = found(&store, rows[i].name, rows[i].takes_only, &path);
            mem_fail_after(-1);
            if (got[0]) assert_string_equal(got, wanted);
            buf_deinit(&path);
            path = (struct buf){0};
            assert_int_equal(mem_blocks_live(), before);
        }
    }
    scratch_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_in_every_spelling),
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
        cmocka_unit_test(long_names_are_refused_and_never_cut),
        cmocka_unit_test(addresses_are_compared_by_origin),
        cmocka_unit_test(what_may_be_secret_is_not_shown),
        cmocka_unit_test(the_whole_quantisation_goes_first),
        cmocka_unit_test(splits_are_whole_or_not_there),
        cmocka_unit_test(a_repositorys_drafter_is_the_tag_mtp),
        cmocka_unit_test(helpers_are_never_chosen_but_drafters_by_their_name),
        cmocka_unit_test(quantisations_are_read_from_names),
        cmocka_unit_test(models_are_found_where_they_lie),
#ifdef CARAT_HAVE_JSON
        cmocka_unit_test(lists_of_files_are_read),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(commits_and_manifests_are_read),
        cmocka_unit_test(missing_memory_is_an_error_and_nothing_is_lost),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
