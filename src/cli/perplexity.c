/* carat perplexity: how well a model predicts a text, and how far apart two models' predictions
 * are.
 *
 * The text is cut into chunks of n_ctx tokens. Each is read from an empty context, with <bos> in
 * place of its first token. Position i of a chunk predicts token i + 1; the positions from n_ctx/2
 * on count. PPL = exp(mean of -ln p). For the comparison, with P from the base file and Q from this
 * model: KL = sum over the vocabulary of P (ln P - ln Q), at every counted position. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "cli/command.h"
#include "cli/file_writer.h"
#include "cli/inputs.h"
#include "cli/logprob_file.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "cli/text_chunks.h"

enum { CHUNKS_MAX = 1 << 20 };

struct scoring {
    struct session session;
    struct logprob_header shape;
    int32_t *tokens;           /* n_chunk * n_ctx; each chunk begins with <bos> */
    struct file_writer writer; /* --save-logits */
    struct logprob_file base;  /* --kl */
    bool has_base;
    float *row, *base_row; /* log-probabilities of one position */
    void *scratch;
    uint32_t chunk; /* being scored */
    double sum, sum_of_squares, base_sum;
    uint64_t n, n_same_top;
    float *divergences; /* of every position */
    struct carat_error *err;
};

static int32_t likeliest_id(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The base is normalised again before the comparison, because probabilities from f16 do not sum to
 * exactly 1. */
static void compare(struct scoring *s, uint32_t row, int32_t next, int32_t n_vocab)
{
    logprob_file_row(&s->base, s->chunk, row, s->base_row);
    double correction = log_sum_exp(s->base_row, n_vocab), divergence = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double log_p = (double)s->base_row[i] - correction, p = exp(log_p);
        if (p > 0) divergence += p * (log_p - (double)s->row[i]);
    }
    s->divergences[s->n] = (float)(divergence > 0 ? divergence : 0);
    s->n_same_top += likeliest_id(s->base_row, n_vocab) == likeliest_id(s->row, n_vocab);
    s->base_sum -= (double)s->base_row[next] - correction;
}

static int take_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct scoring *s = user;
    int32_t next = s->tokens[(size_t)s->chunk * s->shape.n_ctx + (uint32_t)position + 1];
    double total = log_sum_exp(logits, n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) s->row[i] = (float)((double)logits[i] - total);
    double loss = total - (double)logits[next];
    s->sum += loss;
    s->sum_of_squares += loss * loss;
    if (s->has_base) compare(s, (uint32_t)position - s->shape.first, next, n_vocab);
    s->n++;
    if (!file_writer_is_open(&s->writer)) return CARAT_OK;
    return logprob_write_row(&s->writer, &s->shape, s->row, s->scratch, s->err);
}

/* llama.cpp has one option for the file: it is written, or read with --kl-divergence. */
static const char *base_path(const struct options *o)
{
    if (opt_is_set(o, OPT_KL)) return opt_text(o, OPT_KL);
    return opt_is_set(o, OPT_KL_DIVERGENCE) ? opt_text(o, OPT_SAVE_LOGITS) : "";
}

static bool is_saving(const struct options *o)
{
    return opt_is_set(o, OPT_SAVE_LOGITS) && !opt_is_set(o, OPT_KL_DIVERGENCE);
}

/* ---- Tokens ----------------------------------------------------------------------------- */

static uint64_t hash_vocabulary(const carat_model *model)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int32_t id = 0; id < carat_model_info(model)->n_vocab; id++) {
        size_t length;
        const char *piece = carat_token_piece(model, id, &length);
        for (size_t i = 0; i <= length; i++) { /* a zero byte after every piece */
            hash ^= i < length ? (unsigned char)piece[i] : 0;
            hash *= 1099511628211u;
        }
    }
    return hash;
}

static int copy_base_tokens(struct scoring *s, struct carat_error *err)
{
    size_t n = (size_t)s->shape.n_chunk * s->shape.n_ctx;
    s->tokens = mem_alloc(n, sizeof *s->tokens);
    if (!s->tokens) return err_no_memory(err, "tokens", n * sizeof *s->tokens);
    memcpy(s->tokens, s->base.tokens, n * sizeof *s->tokens);
    return CARAT_OK;
}

static int read_text(struct scoring *s, const struct options *o, struct carat_error *err)
{
    struct text_chunks text;
    TRY(text_chunks_read(&text, o, s->session.model, err));
    s->tokens = text.ids;
    s->shape.n_ctx = text.n_ctx;
    s->shape.first = text.n_ctx / 2;
    s->shape.n_chunk = text.n_chunks > CHUNKS_MAX ? CHUNKS_MAX : (uint32_t)text.n_chunks;
    return CARAT_OK;
}

/* --kl: text, chunks and positions come from the base. A text given as well must be the same. */
static int read_base(struct scoring *s, const struct options *o, struct carat_error *err)
{
    const char *path = base_path(o);
    TRY(logprob_file_open(&s->base, path, err));
    s->has_base = true;
    const struct logprob_header *h = &s->base.header;
    if (h->n_vocab != s->shape.n_vocab || h->vocabulary != s->shape.vocabulary) {
        err_set(err, CARAT_EFORMAT,
                "%s: made with another vocabulary (%u tokens, this model has "
                "%u)",
                path, h->n_vocab, s->shape.n_vocab);
        err_hint(err, "compare files of the same model, e.g. two quantisations");
        return CARAT_EFORMAT;
    }
    if (s->tokens) {
        size_t n = (size_t)h->n_chunk * h->n_ctx;
        bool is_same = h->n_ctx == s->shape.n_ctx && h->n_chunk == s->shape.n_chunk &&
                       memcmp(s->tokens, s->base.tokens, n * sizeof *s->tokens) == 0;
        if (is_same) return CARAT_OK;
        err_set(err, CARAT_EFORMAT, "%s: made from another text or with other chunks", path);
        err_hint(err, "leave out -f, -c and --chunks: the base has its own tokens");
        return CARAT_EFORMAT;
    }
    s->shape.n_ctx = h->n_ctx;
    s->shape.first = h->first;
    s->shape.n_chunk = h->n_chunk;
    return copy_base_tokens(s, err);
}

/* ---- Scoring ---------------------------------------------------------------------------- */

static int score_chunks(struct scoring *s, struct carat_error *err)
{
    int32_t n_ctx = (int32_t)s->shape.n_ctx, first = (int32_t)s->shape.first;
    int32_t n_at = n_ctx - 1 - first;
    int32_t *at = mem_alloc((size_t)n_at, sizeof *at);
    if (!at) return err_no_memory(err, "positions", (size_t)n_at * sizeof *at);
    for (int32_t i = 0; i < n_at; i++) at[i] = first + i;
    int status = CARAT_OK;
    for (s->chunk = 0; s->chunk < s->shape.n_chunk && status == CARAT_OK; s->chunk++) {
        progress("scoring chunk", (int)s->chunk + 1, (int)s->shape.n_chunk);
        status = carat_score(s->session.engine, s->tokens + (size_t)s->chunk * s->shape.n_ctx,
                             n_ctx, at, n_at, take_row, s, err);
    }
    progress_end();
    mem_free(at);
    return status;
}

/* Opens the file to write first, so that a bad name is reported before anything is loaded. */
static int open_base(struct scoring *s, const struct options *o, struct carat_error *err)
{
    const char *path = opt_text(o, OPT_SAVE_LOGITS);
    if (!is_saving(o)) return CARAT_OK;
    TRY(inputs_protect(o, buf_text(&s->session.path), path, err));
    return file_writer_open(&s->writer, path, WRITE_BINARY, err);
}

static int prepare(struct scoring *s, const struct options *o, struct carat_error *err)
{
    TRY(session_find(&s->session, o, err));
    TRY(no_more_arguments(o, s->session.next_argument, err));
    if (opt_is_set(o, OPT_KL_DIVERGENCE) && !base_path(o)[0]) {
        err_set(err, CARAT_EUSAGE, "perplexity: --kl-divergence without a base");
        err_hint(err, "give the file that --save-logits wrote with --kl BASE");
        return CARAT_EUSAGE;
    }
    if (!opt_is_set(o, OPT_TEXT_FILE) && !base_path(o)[0]) {
        err_set(err, CARAT_EUSAGE, "perplexity: a text is missing");
        err_hint(err, "give one with -f FILE, or compare with a base file by --kl BASE");
        return CARAT_EUSAGE;
    }
    TRY(open_base(s, o, err));
    TRY(session_load(&s->session, err));
    s->shape.n_vocab = (uint32_t)carat_model_info(s->session.model)->n_vocab;
    s->shape.vocabulary = hash_vocabulary(s->session.model);
    s->shape.type = strcmp(opt_text(o, OPT_BASE_TYPE), "f32") == 0 ? LOGPROB_F32 : LOGPROB_F16;
    if (opt_is_set(o, OPT_TEXT_FILE)) TRY(read_text(s, o, err));
    if (base_path(o)[0]) TRY(read_base(s, o, err));

    size_t n = (size_t)s->shape.n_chunk * (s->shape.n_ctx - 1 - s->shape.first);
    s->row = mem_alloc(s->shape.n_vocab, sizeof *s->row);
    s->base_row = mem_alloc(s->shape.n_vocab, sizeof *s->base_row);
    s->scratch = mem_alloc(s->shape.n_vocab, sizeof(uint16_t));
    s->divergences = mem_alloc(n, sizeof *s->divergences);
    if (!s->row || !s->base_row || !s->scratch || !s->divergences)
        return err_no_memory(err, "scores", n * sizeof *s->divergences);
    struct carat_engine_options options = engine_options(o);
    options.n_ctx = (int32_t)s->shape.n_ctx;
    return session_start(&s->session, &options, err);
}

static int score_text(struct scoring *s, const struct options *o, struct carat_error *err)
{
    TRY(prepare(s, o, err));
    if (strcmp(carat_model_info(s->session.model)->variant, "other") != 0)
        note("instruction-tuned models score plain text badly; compare files with --save-logits "
             "and --kl, not perplexities");
    if (file_writer_is_open(&s->writer))
        TRY(logprob_write_header(&s->writer, &s->shape, s->tokens, err));
    return score_chunks(s, err);
}

/* ---- Report ----------------------------------------------------------------------------- */

struct result {
    double ppl, ppl_error, base_ppl, kl_mean, kl_median, kl_p99, kl_p999, kl_max, same_top;
};

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static struct result summarize(struct scoring *s)
{
    struct result r = {0};
    double n = (double)s->n, mean = s->sum / n;
    double variance = s->sum_of_squares / n - mean * mean;
    r.ppl = exp(mean);
    r.ppl_error = s->n > 1 && variance > 0 ? r.ppl * sqrt(variance / (n - 1)) : 0;
    if (!s->has_base) return r;
    qsort(s->divergences, s->n, sizeof *s->divergences, by_size);
    double sum = 0;
    for (uint64_t i = 0; i < s->n; i++) sum += (double)s->divergences[i];
    r.base_ppl = exp(s->base_sum / n);
    r.kl_mean = sum / n;
    r.kl_median = (double)s->divergences[s->n / 2];
    r.kl_p99 = (double)s->divergences[(uint64_t)(0.99 * (n - 1))];
    r.kl_p999 = (double)s->divergences[(uint64_t)(0.999 * (n - 1))];
    r.kl_max = (double)s->divergences[s->n - 1];
    r.same_top = 100.0 * (double)s->n_same_top / n;
    return r;
}

/* To standard output, or to standard error if the base takes standard output. */
static void print_report(struct scoring *s, bool is_json, bool is_beside)
{
    struct result r = summarize(s);
    const struct {
        const char *key, *label;
        double value;
        bool needs_base;
    } rows[] = {
        {"ppl", "perplexity", r.ppl, false},
        {"ppl_error", "its standard error", r.ppl_error, false},
        {"base_ppl", "perplexity of the base", r.base_ppl, true},
        {"kl_mean", "KL divergence, mean", r.kl_mean, true},
        {"kl_median", "KL divergence, median", r.kl_median, true},
        {"kl_p99", "KL divergence, 99 %", r.kl_p99, true},
        {"kl_p999", "KL divergence, 99.9 %", r.kl_p999, true},
        {"kl_max", "KL divergence, largest", r.kl_max, true},
        {"same_top_percent", "same best token, %", r.same_top, true},
    };
    struct buf b = {0};
    struct json j = {.out = &b};
    if (is_json) {
        json_begin_object(&j);
        json_key_int(&j, "chunks", s->shape.n_chunk);
        json_key_int(&j, "n_ctx", s->shape.n_ctx);
        json_key_int(&j, "scored", (int64_t)s->n);
    } else {
        buf_printf(&b, "| %u chunks of %u tokens, %llu scored | |\n| --- | ---: |\n",
                   s->shape.n_chunk, s->shape.n_ctx, (unsigned long long)s->n);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].needs_base && !s->has_base) continue;
        if (is_json) {
            json_key_double(&j, rows[i].key, rows[i].value);
        } else {
            buf_printf(&b, "| %s | %.6g |\n", rows[i].label, rows[i].value);
        }
    }
    if (is_json) json_end_object(&j);
    if (is_json) buf_add_char(&b, '\n');
    if (is_beside)
        err_printf("%s", buf_text(&b));
    else
        out_text(buf_text(&b));
    buf_deinit(&b);
}

int command_perplexity(const struct options *o)
{
    struct carat_error err = {0};
    struct scoring s = {.err = &err};
    int status = score_text(&s, o, &err);
    bool is_beside = s.writer.is_standard;
    bool is_json = strcmp(opt_text(o, OPT_PPL_FORMAT), "json") == 0;
    status = file_writer_close(&s.writer, status, &err);
    if (status == CARAT_OK) print_report(&s, is_json, is_beside);
    if (s.has_base) logprob_file_close(&s.base);
    carat_free(s.tokens);
    mem_free(s.row);
    mem_free(s.base_row);
    mem_free(s.scratch);
    mem_free(s.divergences);
    session_close(&s.session);
    return status == CARAT_OK ? 0 : report(&err);
}
