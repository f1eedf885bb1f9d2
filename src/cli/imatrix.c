/* carat imatrix: which columns of weights matter, measured over a text.
 *
 * The text is cut into chunks of n_ctx tokens, as `carat perplexity` does. Logits of all positions
 * are asked for, because later layers compute no others. They also tell the perplexity. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "carat_quantize.h"
#include "cli/command.h"
#include "cli/file_writer.h"
#include "cli/inputs.h"
#include "cli/session.h"
#include "cli/size_text.h"
#include "cli/terminal.h"
#include "cli/text_chunks.h"

struct measuring {
    struct session session;
    carat_importance *importance;
    struct file_writer writer;
    struct text_chunks text;
    const int32_t *chunk; /* that is being read */
    double loss;
    uint64_t n_scored;
};

static int take_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct measuring *m = user;
    int32_t n_ctx = (int32_t)m->text.n_ctx;
    if (position < n_ctx / 2 || position + 1 == n_ctx) return CARAT_OK;
    m->loss += log_sum_exp(logits, n_vocab) - (double)logits[m->chunk[position + 1]];
    m->n_scored++;
    return CARAT_OK;
}

static int read_chunks(struct measuring *m, struct carat_error *err)
{
    const struct text_chunks *t = &m->text;
    int status = CARAT_OK;
    for (size_t c = 0; c < t->n_chunks && status == CARAT_OK; c++) {
        progress("reading chunk", (int)c + 1, (int)t->n_chunks);
        m->chunk = t->ids + c * t->n_ctx;
        status =
            carat_score(m->session.engine, m->chunk, (int32_t)t->n_ctx, NULL, 0, take_row, m, err);
    }
    progress_end();
    return status;
}

static int prepare(struct measuring *m, const struct options *o, struct carat_error *err)
{
    const char *out = opt_text(o, OPT_IMATRIX_OUT);
    TRY(session_find(&m->session, o, err));
    TRY(no_more_arguments(o, m->session.next_argument, err));
    if (!opt_is_set(o, OPT_TEXT_FILE)) {
        err_set(err, CARAT_EUSAGE, "imatrix: a text is missing");
        err_hint(err, "give one with -f FILE");
        return CARAT_EUSAGE;
    }
    TRY(inputs_protect(o, buf_text(&m->session.path), out, err));
    TRY(file_writer_open(&m->writer, out, WRITE_BINARY, err));
    TRY(session_load(&m->session, err));
    TRY(text_chunks_read(&m->text, o, m->session.model, err));
    TRY(carat_importance_open(&m->importance, m->session.model, err));
    struct carat_engine_options options = engine_options(o);
    options.n_ctx = (int32_t)m->text.n_ctx;
    options.importance = m->importance;
    return session_start(&m->session, &options, err);
}

static int write_piece(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    return file_writer_add(user, bytes, n, err);
}

static int measure(struct measuring *m, const struct options *o, struct carat_error *err)
{
    TRY(prepare(m, o, err));
    TRY(read_chunks(m, err));
    struct carat_importance_facts facts = {.dataset = opt_text(o, OPT_TEXT_FILE),
                                           .n_chunks = (int32_t)m->text.n_chunks,
                                           .chunk_tokens = (int32_t)m->text.n_ctx};
    return carat_importance_write(m->importance, &facts, write_piece, &m->writer, err);
}

int command_imatrix(const struct options *o)
{
    struct carat_error err = {0};
    struct measuring m = {0};
    int status = measure(&m, o, &err);
    size_t bytes = m.writer.bytes;
    status = file_writer_close(&m.writer, status, &err);
    const char *out = opt_text(o, OPT_IMATRIX_OUT);
    char size[SIZE_TEXT_MAX];
    if (status == CARAT_OK && !is_standard_output(out))
        out_printf("%s: %s, %zu chunks of %u tokens, perplexity %.4g\n", out,
                   size_text(bytes, size), m.text.n_chunks, m.text.n_ctx,
                   exp(m.loss / (double)m.n_scored));
    session_close(&m.session);
    carat_importance_close(m.importance);
    carat_free(m.text.ids);
    return status == CARAT_OK ? 0 : report(&err);
}
