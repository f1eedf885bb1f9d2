#include "engine/dry_breaks.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "text/sampling_defaults.h"
#include "text/tokenizer.h"

enum { MARK_BYTES = 3 };
static const char space_mark[] = "\xE2\x96\x81"; /* a space, as token texts have it */

/* The tokens of a breaker after its first `cut` bytes. */
struct tail {
    int32_t n; /* -1: the cut is within a space mark */
    int32_t ids[DRY_TAIL_MAX];
};

struct breaker {
    char *text; /* as token texts have it */
    size_t length;
    struct tail *tails; /* [length]; 0 is unused */
};

struct dry_breaks {
    const struct vocab *vocab;
    size_t n;
    struct breaker all[CARAT_DRY_BREAKERS_MAX];
};

/* ---- Opening ---------------------------------------------------------------------------- */

static int read_tail(struct tail *tail, const struct vocab *v, const char *rest, size_t length,
                     struct carat_error *err)
{
    int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(v, rest, length, CARAT_SPECIAL_NONE, false, &ids, &n, err));
    tail->n = n < DRY_TAIL_MAX ? (int32_t)n : DRY_TAIL_MAX;
    memcpy(tail->ids, ids, (size_t)tail->n * sizeof *ids);
    mem_free(ids);
    return CARAT_OK;
}

static int read_breaker(struct breaker *b, const struct vocab *v, const char *text,
                        struct carat_error *err)
{
    size_t length = strlen(text);
    b->text = mem_alloc(MARK_BYTES, length);
    b->tails = mem_alloc(MARK_BYTES * length, sizeof *b->tails);
    if (!b->text || !b->tails) return err_no_memory(err, "dry_sequence_breakers", length);
    for (size_t i = 0; i < length; i++) {
        bool is_space = text[i] == ' ';
        size_t bytes = is_space ? MARK_BYTES : 1;
        memcpy(b->text + b->length, is_space ? space_mark : text + i, bytes);
        for (size_t k = 1; k < bytes; k++) b->tails[b->length + k].n = -1;
        if (i > 0) TRY(read_tail(&b->tails[b->length], v, text + i, length - i, err));
        b->length += bytes;
    }
    return CARAT_OK;
}

int dry_breaks_open(struct dry_breaks **out, const struct carat_sampling *p, const struct vocab *v,
                    struct carat_error *err)
{
    if (!p->dry_breakers) p = &sampling_of_zeros;
    *out = NULL;
    if (!v || p->n_dry_breakers == 0) return CARAT_OK;
    struct dry_breaks *b = mem_alloc(1, sizeof *b);
    if (!b) return err_no_memory(err, "dry_sequence_breakers", sizeof *b);
    b->vocab = v;
    int status = CARAT_OK;
    while (status == CARAT_OK && b->n < p->n_dry_breakers) {
        status = read_breaker(&b->all[b->n], v, p->dry_breakers[b->n], err);
        b->n++;
    }
    if (status != CARAT_OK)
        dry_breaks_close(b);
    else
        *out = b;
    return status;
}

void dry_breaks_close(struct dry_breaks *b)
{
    if (!b) return;
    for (size_t i = 0; i < b->n; i++) {
        mem_free(b->all[i].text);
        mem_free(b->all[i].tails);
    }
    mem_free(b);
}

/* ---- Looking ---------------------------------------------------------------------------- */

struct piece {
    const char *text;
    size_t length;
    char byte;
};

static void read_piece(struct piece *p, const struct vocab *v, int32_t id)
{
    p->text = vocab_piece(v, id, &p->length);
    if (vocab_class(v, id) != TOKEN_BYTE) return;
    p->byte = (char)vocab_byte_value(v, id);
    p->text = &p->byte;
    p->length = 1;
}

/* The longest tail of a breaker that begins at the end of a token and goes on in the next n
 * tokens, if it is longer than `least`; else `least`. */
static int32_t longest_tail(const struct breaker *b, const struct piece *p, const int32_t *tokens,
                            int32_t n, int32_t least)
{
    size_t most = p->length < b->length - 1 ? p->length : b->length - 1;
    for (size_t cut = 1; cut <= most; cut++) {
        const struct tail *tail = &b->tails[cut];
        const char *end = p->text + p->length - cut;
        if (tail->n <= least || tail->n > n || memcmp(end, b->text, cut) != 0) continue;
        if (memcmp(tail->ids, tokens, (size_t)tail->n * sizeof *tokens) == 0) least = tail->n;
    }
    return least;
}

int32_t dry_breaks_after(const struct dry_breaks *b, int32_t id, const int32_t *tokens, int32_t n)
{
    struct piece p;
    int32_t longest = -1;
    if (!b) return -1;
    read_piece(&p, b->vocab, id);
    for (size_t i = 0; i < b->n; i++) {
        const struct breaker *one = &b->all[i];
        if (!memchr(p.text, one->text[0], p.length)) continue;
        if (memmem(p.text, p.length, one->text, one->length)) {
            if (longest < 0) longest = 0;
        } else if (one->length > 1) {
            longest = longest_tail(one, &p, tokens, n, longest);
        }
    }
    return longest;
}

bool dry_breaks_within(const struct dry_breaks *b, int32_t id)
{
    return dry_breaks_after(b, id, NULL, 0) == 0;
}
