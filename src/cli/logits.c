/* carat logits: the numbers themselves, for other tools to compare. */
#include <assert.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "carat_inspect.h"
#include "cli/command.h"
#include "cli/file_writer.h"
#include "cli/files.h"
#include "cli/inputs.h"
#include "cli/session.h"
#include "cli/terminal.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are written as they are in memory");

struct rows {
    struct file_writer writer;
    struct carat_error *err;
    int32_t count, total, n_vocab;
};

static int take_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct rows *rows = user;
    (void)position;
    rows->n_vocab = n_vocab;
    progress("logits", ++rows->count, rows->total);
    return file_writer_add(&rows->writer, logits, (size_t)n_vocab * sizeof *logits, rows->err);
}

static int read_tokens(const struct options *o, int32_t **ids, size_t *n, struct carat_error *err)
{
    bool is_file = opt_is_set(o, OPT_TOKENS_FILE);
    if (is_file == opt_is_set(o, OPT_TOKENS)) {
        err_set(err, CARAT_EUSAGE, "logits: one of --tokens and --tokens-file is needed");
        return CARAT_EUSAGE;
    }
    struct buf text = {0};
    int status = CARAT_OK;
    if (is_file)
        status = file_read(opt_text(o, OPT_TOKENS_FILE), &text, err);
    else
        buf_add_text(&text, opt_text(o, OPT_TOKENS));
    if (status == CARAT_OK)
        status = parse_ids(buf_text(&text), text.length, is_file ? "--tokens-file" : "--tokens",
                           ids, n, err);
    if (status == CARAT_OK && *n == 0)
        status = err_set(err, CARAT_EUSAGE, "logits: no token ids given");
    if (status == CARAT_OK && *n > COUNT_MAX)
        status = err_set(err, CARAT_EUSAGE, "logits: more than %d tokens", COUNT_MAX);
    buf_deinit(&text);
    return status;
}

/* The positions wanted, ascending; *at stays NULL for all of them. */
static int read_positions(const struct options *o, size_t n_tokens, int32_t **at, size_t *n_at,
                          struct carat_error *err)
{
    if (opt_is_set(o, OPT_ALL)) {
        if (opt_is_set(o, OPT_AT))
            return err_set(err, CARAT_EUSAGE, "logits: --all and --at exclude each other");
        *n_at = n_tokens;
        return CARAT_OK;
    }
    if (!opt_is_set(o, OPT_AT)) {
        *at = mem_alloc(1, sizeof **at);
        if (!*at) return err_no_memory(err, "positions", sizeof **at);
        **at = (int32_t)n_tokens - 1;
        *n_at = 1;
        return CARAT_OK;
    }
    const char *text = opt_text(o, OPT_AT);
    TRY(parse_ids(text, strlen(text), "--at", at, n_at, err));
    for (size_t i = 0; i < *n_at; i++) {
        if ((size_t)(*at)[i] >= n_tokens)
            return err_set(err, CARAT_EUSAGE, "--at: position %d, but there are %zu tokens",
                           (*at)[i], n_tokens);
        if (i > 0 && (*at)[i] <= (*at)[i - 1])
            return err_set(err, CARAT_EUSAGE, "--at: positions must ascend, %d follows %d",
                           (*at)[i], (*at)[i - 1]);
    }
    if (*n_at == 0) return err_set(err, CARAT_EUSAGE, "--at: no position given");
    return CARAT_OK;
}

static int score_ids(const struct options *o, struct session *s, const int32_t *ids, size_t n,
                     const int32_t *at, size_t n_at, struct rows *rows, double *seconds,
                     struct carat_error *err)
{
    struct carat_engine_options options = engine_options(o);
    if (options.n_ctx == 0) options.n_ctx = context_for(s->model, (int32_t)n);
    TRY(session_start(s, &options, err));
    double begin = os_seconds();
    int status =
        carat_score(s->engine, ids, (int32_t)n, at, at ? (int32_t)n_at : 0, take_row, rows, err);
    *seconds = os_seconds() - begin;
    progress_end();
    return status;
}

/* Opens the file of rows first, so that a bad name is reported before anything is loaded. */
static int open_rows(const struct options *o, const struct session *s, struct rows *rows,
                     struct carat_error *err)
{
    if (!opt_is_set(o, OPT_OUTPUT)) return err_set(err, CARAT_EUSAGE, "logits: -o FILE is missing");
    TRY(inputs_protect(o, buf_text(&s->path), opt_text(o, OPT_OUTPUT), err));
    return file_writer_open(&rows->writer, opt_text(o, OPT_OUTPUT), WRITE_BINARY, err);
}

/* To standard output, or to standard error if the rows take standard output. */
static void print_report(const struct rows *rows, double seconds, bool is_beside)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_int(&j, "rows", rows->count);
    json_key_int(&j, "vocab", rows->n_vocab);
    json_key_double(&j, "seconds", seconds);
    json_end_object(&j);
    if (!is_beside)
        out_printf("%s\n", buf_text(&b));
    else
        note("%s", buf_text(&b));
    buf_deinit(&b);
}

int command_logits(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    struct rows rows = {.err = &err};
    int32_t *ids = NULL, *at = NULL;
    size_t n = 0, n_at = 0;
    double seconds = 0;
    int status = read_tokens(o, &ids, &n, &err);
    if (status == CARAT_OK) status = read_positions(o, n, &at, &n_at, &err);
    if (status == CARAT_OK) status = session_find(&s, o, &err);
    if (status == CARAT_OK) status = no_more_arguments(o, s.next_argument, &err);
    if (status == CARAT_OK) status = open_rows(o, &s, &rows, &err);
    if (status == CARAT_OK) status = session_load(&s, &err);
    rows.total = (int32_t)n_at;
    bool is_beside = rows.writer.is_standard;
    if (status == CARAT_OK) status = score_ids(o, &s, ids, n, at, n_at, &rows, &seconds, &err);
    status = file_writer_close(&rows.writer, status, &err);
    if (status == CARAT_OK) print_report(&rows, seconds, is_beside);
    mem_free(ids);
    mem_free(at);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
