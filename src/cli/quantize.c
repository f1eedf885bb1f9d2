/* carat quantize: a model file with its weights in another type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat_quantize.h"
#include "cli/command.h"
#include "cli/file_writer.h"
#include "cli/inputs.h"
#include "cli/models.h"
#include "cli/size_text.h"
#include "cli/terminal.h"

enum { SUMS_MAX = 64, THREADS_MAX = 512, NAMES_MAX = 3 };

/* Tensors that went from one type to another. */
struct sum {
    char from[16], to[16];
    int n;
    uint64_t from_bytes, to_bytes;
    double n_values, squares;            /* squares: sum of n_values times squared errors */
    double n_weighted, weighted_squares; /* of tensors with importance */
};

struct quantizing {
    struct file_writer writer;
    struct sum sums[SUMS_MAX]; /* the last one takes what finds no room */
    int n_sums;
    bool has_matrix;
    int n_encoded, n_without; /* tensors with blocks; those without importance */
    struct buf without;       /* names of the first of these */
    struct buf text;          /* JSON */
    struct json json;
};

/* ---- What the library calls -------------------------------------------------------------- */

static int write_piece(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct quantizing *q = user;
    return file_writer_add(&q->writer, bytes, n, err);
}

static struct sum *sum_of(struct quantizing *q, const struct carat_quantized *t)
{
    int i = 0;
    while (i < q->n_sums && (strcmp(q->sums[i].from, t->from) || strcmp(q->sums[i].to, t->to))) i++;
    if (i == SUMS_MAX) return &q->sums[SUMS_MAX - 1];
    if (i == q->n_sums) {
        snprintf(q->sums[i].from, sizeof q->sums[i].from, "%s", t->from);
        snprintf(q->sums[i].to, sizeof q->sums[i].to, "%s", t->to);
        q->n_sums++;
    }
    return &q->sums[i];
}

static void add_json(struct json *j, const struct carat_quantized *t)
{
    json_begin_object(j);
    json_key_string(j, "name", t->name);
    json_key_string(j, "from", t->from);
    json_key_string(j, "to", t->to);
    json_key_int(j, "from_bytes", (int64_t)t->from_bytes);
    json_key_int(j, "bytes", (int64_t)t->to_bytes);
    json_key_double(j, "error", t->error);
    if (t->is_weighted) json_key_double(j, "weighted_error", t->weighted_error);
    json_end_object(j);
}

/* Counts a tensor whose values were encoded; floats have no use for importance. */
static void count_importance(struct quantizing *q, const struct carat_quantized *t)
{
    bool is_float =
        strcmp(t->to, "F32") == 0 || strcmp(t->to, "F16") == 0 || strcmp(t->to, "BF16") == 0;
    if (!q->has_matrix || is_float || strcmp(t->from, t->to) == 0) return;
    q->n_encoded++;
    if (t->is_weighted) return;
    if (++q->n_without <= NAMES_MAX)
        buf_printf(&q->without, "%s%s", q->n_without > 1 ? ", " : "", t->name);
    else if (q->n_without == NAMES_MAX + 1)
        buf_printf(&q->without, ", ...");
}

static void take_tensor(void *user, const struct carat_quantized *t, int32_t index, int32_t count)
{
    struct quantizing *q = user;
    struct sum *s = sum_of(q, t);
    s->n++;
    s->from_bytes += t->from_bytes;
    s->to_bytes += t->to_bytes;
    s->n_values += (double)t->n_values;
    s->squares += (double)t->n_values * t->error * t->error;
    if (t->is_weighted) {
        s->n_weighted += (double)t->n_values;
        s->weighted_squares += (double)t->n_values * t->weighted_error * t->weighted_error;
    }
    count_importance(q, t);
    if (q->json.out) add_json(&q->json, t);
    if (file_writer_is_open(&q->writer)) progress("tensors", index + 1, count);
}

/* ---- What is asked for ------------------------------------------------------------------- */

struct request {
    const char *model, *out, *type; /* out: NULL in a dry run */
    int32_t n_threads;
};

/* The number of threads, which llama-quantize has last. */
static int read_threads(const char *text, int32_t *out, struct carat_error *err)
{
    char *end;
    long threads = strtol(text, &end, 10);
    if (*end != '\0' || threads < 1 || threads > THREADS_MAX)
        return err_set(err, CARAT_EUSAGE, "quantize: 1 to %d threads expected, \"%.40s\" found",
                       THREADS_MAX, text);
    *out = (int32_t)threads;
    return CARAT_OK;
}

/* MODEL [OUT] TYPE [THREADS] */
static int read_arguments(const struct options *o, struct request *r, struct carat_error *err)
{
    size_t n = o->n_arguments;
    bool is_dry = opt_is_set(o, OPT_DRY_RUN);
    r->n_threads = (int32_t)opt_int(o, OPT_QUANTIZE_THREADS);
    if (n == 4) TRY(read_threads(o->arguments[--n], &r->n_threads, err));
    if (n == 3 || (n == 2 && is_dry)) {
        r->model = o->arguments[0];
        r->out = is_dry ? NULL : o->arguments[1];
        r->type = o->arguments[n - 1];
        return CARAT_OK;
    }
    err_set(err, CARAT_EUSAGE, "quantize: MODEL, OUT and TYPE expected, %zu argument%s found",
            o->n_arguments, o->n_arguments == 1 ? "" : "s");
    err_hint(err,
             n == 2 ? "name the file to write, or give --dry-run" : "see `carat help quantize`");
    return CARAT_EUSAGE;
}

/* `text` is cut in two at its equals sign. */
static int read_rule(char *text, struct carat_type_rule *rule, struct carat_error *err)
{
    char *at = strrchr(text, '=');
    if (!at || at == text || at[1] == '\0')
        return err_set(err, CARAT_EUSAGE, "--tensor-type: NAME=TYPE expected, \"%.60s\" found",
                       text);
    *at = '\0';
    *rule = (struct carat_type_rule){text, at + 1};
    return CARAT_OK;
}

/* The user's types of tensors; `copy` holds their texts. */
static int read_rules(const struct options *o, struct carat_type_rule **rules, int32_t *n_rules,
                      struct buf *copy, struct carat_error *err)
{
    const struct option_value *given = &o->values[OPT_TENSOR_TYPE];
    size_t n = given->n_list, at = 0;
    *rules = mem_alloc(n + 1, sizeof **rules);
    for (size_t i = 0; i < n; i++) buf_add(copy, given->list[i], strlen(given->list[i]) + 1);
    if (!*rules || copy->failed) return err_no_memory(err, "types", copy->length);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(copy->data + at) + 1;
        TRY(read_rule(copy->data + at, &(*rules)[i], err));
        at += length;
    }
    if (opt_is_set(o, OPT_TOKEN_TYPE))
        (*rules)[n++] = (struct carat_type_rule){"^token_embd", opt_text(o, OPT_TOKEN_TYPE)};
    *n_rules = (int32_t)n;
    return CARAT_OK;
}

/* ---- What is printed --------------------------------------------------------------------- */

static void print_sum(const struct sum *s)
{
    char from[SIZE_TEXT_MAX], to[SIZE_TEXT_MAX];
    bool is_kept = strcmp(s->from, s->to) == 0;
    out_printf("%-7s %-2s %-7s %5d tensor%s  %12s", s->from, is_kept ? "" : "to",
               is_kept ? "" : s->to, s->n, s->n == 1 ? " " : "s", size_text(s->from_bytes, from));
    if (!is_kept) out_printf(" to %12s", size_text(s->to_bytes, to));
    if (s->squares > 0) out_printf("  error %.4f", sqrt(s->squares / s->n_values));
    if (s->weighted_squares > 0)
        out_printf(", weighted %.4f", sqrt(s->weighted_squares / s->n_weighted));
    out_text("\n");
}

static struct sum total_of(const struct quantizing *q)
{
    struct sum all = {0};
    for (int i = 0; i < q->n_sums; i++) {
        all.from_bytes += q->sums[i].from_bytes;
        all.to_bytes += q->sums[i].to_bytes;
        all.n_values += q->sums[i].n_values;
    }
    return all;
}

static void print_text(const struct quantizing *q)
{
    char from[SIZE_TEXT_MAX], to[SIZE_TEXT_MAX];
    struct sum all = total_of(q);
    for (int i = 0; i < q->n_sums; i++) print_sum(&q->sums[i]);
    out_printf("%s to %s, %.2f bits a weight\n", size_text(all.from_bytes, from),
               size_text(all.to_bytes, to), 8 * (double)all.to_bytes / all.n_values);
}

static void print_json(struct quantizing *q, const struct request *r)
{
    struct sum all = total_of(q);
    json_end_array(&q->json);
    json_key_string(&q->json, "type", r->type);
    json_key_string(&q->json, "file", r->out);
    json_key_int(&q->json, "from_bytes", (int64_t)all.from_bytes);
    json_key_int(&q->json, "bytes", (int64_t)all.to_bytes);
    json_key_double(&q->json, "bits_per_weight", 8 * (double)all.to_bytes / all.n_values);
    json_end_object(&q->json);
    out_printf("%s\n", buf_text(&q->text));
}

/* ---- The command ------------------------------------------------------------------------- */

static int open_out(const struct options *o, const char *path, const struct request *r,
                    struct quantizing *q, struct carat_error *err)
{
    if (!r->out) return CARAT_OK;
    TRY(inputs_protect(o, path, r->out, err));
    return file_writer_open(&q->writer, r->out, WRITE_BINARY, err);
}

static void take_matrix(const struct options *o, struct carat_quantize_options *q)
{
    const struct option_value *include = &o->values[OPT_INCLUDE_WEIGHTS];
    const struct option_value *exclude = &o->values[OPT_EXCLUDE_WEIGHTS];
    if (opt_is_set(o, OPT_IMATRIX)) q->imatrix = opt_text(o, OPT_IMATRIX);
    q->include = include->list;
    q->n_include = (int32_t)include->n_list;
    q->exclude = exclude->list;
    q->n_exclude = (int32_t)exclude->n_list;
}

static int quantize(const struct options *o, const struct request *r, struct quantizing *q,
                    struct carat_error *err)
{
    struct buf path = {0}, copy = {0};
    struct carat_type_rule *rules = NULL;
    struct carat_quantize_options options = {.size = sizeof options,
                                             .type = r->type,
                                             .n_threads = r->n_threads,
                                             .is_pure = opt_is_set(o, OPT_PURE),
                                             .may_requantize = opt_is_set(o, OPT_ALLOW_REQUANTIZE),
                                             .write = r->out ? write_piece : NULL,
                                             .tensor = take_tensor,
                                             .user = q};
    take_matrix(o, &options);
    q->has_matrix = options.imatrix != NULL;
    int status = read_rules(o, &rules, &options.n_rules, &copy, err);
    options.rules = rules;
    if (!status) status = model_find(r->model, &path, err);
    if (!status) status = open_out(o, buf_text(&path), r, q, err);
    if (!status) status = carat_quantize(buf_text(&path), &options, err);
    progress_end();
    status = file_writer_close(&q->writer, status, err);
    mem_free(rules);
    buf_deinit(&path);
    buf_deinit(&copy);
    return status;
}

int command_quantize(const struct options *o)
{
    struct carat_error err = {0};
    struct request r = {0};
    struct quantizing q = {0};
    if (opt_is_set(o, OPT_JSON)) {
        q.json.out = &q.text;
        json_begin_object(&q.json);
        json_key(&q.json, "tensors");
        json_begin_array(&q.json);
    }
    int status = read_arguments(o, &r, &err);
    if (status == CARAT_OK) status = quantize(o, &r, &q, &err);
    if (status == CARAT_OK && q.n_without > 0)
        note("%d of %d tensors without importance: %s", q.n_without, q.n_encoded,
             buf_text(&q.without));
    bool is_shown = status == CARAT_OK && !(r.out && is_standard_output(r.out));
    if (is_shown && q.json.out)
        print_json(&q, &r);
    else if (is_shown)
        print_text(&q);
    buf_deinit(&q.without);
    buf_deinit(&q.text);
    return status == CARAT_OK ? 0 : report(&err);
}
