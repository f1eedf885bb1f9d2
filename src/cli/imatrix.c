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
#include "cli/files.h"
#include "cli/inputs.h"
#include "cli/session.h"
#include "cli/size_text.h"
#include "cli/terminal.h"

struct measuring {
    struct session session;
    carat_importance *importance;
    struct file_writer writer;
    int32_t *ids; /* of the whole text, with <bos> at its beginning */
    size_t n_chunks;
    int32_t chunk_tokens;
    const int32_t *chunk; /* that is being read */
    double loss;
    uint64_t n_scored;
};

static int read_text(struct measuring *m, const struct options *o, struct carat_error *err)
{
    struct buf text = {0};
    size_t n = 0;
    int64_t most = opt_int(o, OPT_CHUNKS);
    int status = file_read(opt_text(o, OPT_TEXT_FILE), &text, err);
    if (status == CARAT_OK)
        status = carat_tokenize(m->session.model, buf_text(&text), text.length,
                                CARAT_SPECIAL_USER_DEFINED, true, &m->ids, &n, err);
    buf_deinit(&text);
    if (status != CARAT_OK) return status;
    m->n_chunks = n / (size_t)m->chunk_tokens;
    if (most >= 0 && m->n_chunks > (size_t)most) m->n_chunks = (size_t)most;
    if (m->n_chunks > 0) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: %zu tokens, at least one chunk of %d expected",
            opt_text(o, OPT_TEXT_FILE), n, m->chunk_tokens);
    err_hint(err, "use a longer text, or a smaller chunk with -c");
    return CARAT_EUSAGE;
}

static int take_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct measuring *m = user;
    if (position < m->chunk_tokens / 2 || position + 1 == m->chunk_tokens) return CARAT_OK;
    float most = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < n_vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)most);
    m->loss += log(sum) + (double)most - (double)logits[m->chunk[position + 1]];
    m->n_scored++;
    return CARAT_OK;
}

static int read_chunks(struct measuring *m, struct carat_error *err)
{
    int32_t n = m->chunk_tokens, bos = m->ids[0];
    int status = CARAT_OK;
    for (size_t c = 0; c < m->n_chunks && status == CARAT_OK; c++) {
        progress("reading chunk", (int)c + 1, (int)m->n_chunks);
        m->chunk = m->ids + c * (size_t)n;
        m->ids[c * (size_t)n] = bos;
        status = carat_score(m->session.engine, m->chunk, n, NULL, 0, take_row, m, err);
    }
    progress_end();
    return status;
}

static int prepare(struct measuring *m, const struct options *o, struct carat_error *err)
{
    const char *out = opt_text(o, OPT_IMATRIX_OUT);
    m->chunk_tokens = (int32_t)opt_int(o, OPT_PPL_CTX);
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
    TRY(read_text(m, o, err));
    TRY(carat_importance_open(&m->importance, m->session.model, err));
    struct carat_engine_options options = engine_options(o);
    options.n_ctx = m->chunk_tokens;
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
                                           .n_chunks = (int32_t)m->n_chunks,
                                           .chunk_tokens = m->chunk_tokens};
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
        out_printf("%s: %s, %zu chunks of %d tokens, perplexity %.4g\n", out,
                   size_text(bytes, size), m.n_chunks, m.chunk_tokens,
                   exp(m.loss / (double)m.n_scored));
    session_close(&m.session);
    carat_importance_close(m.importance);
    carat_free(m.ids);
    return status == CARAT_OK ? 0 : report(&err);
}
