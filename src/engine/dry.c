/* length[i] says how many tokens up to position i are those at the end. It is known for positions
 * whose token is the newest one; elsewhere it would be 0. When another token comes, the lengths
 * follow from those one position before. When several came, they are computed anew. */
#include "engine/dry.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "engine/dry_breaks.h"

/* A logit lowered by more would not be a number that can be picked where nothing else is left. */
static const double penalty_max = 1e30;

struct dry {
    int32_t n_vocab;
    double multiplier, base, exponent_max;
    int32_t allowed; /* repetitions of fewer tokens are not lowered */
    int32_t window;  /* tokens that are looked at */
    struct dry_breaks *breaks;
    int32_t *ids, *length; /* room; the accepted tokens, at least the last `window` of them */
    int32_t room, n;
    int32_t n_new;                  /* of them, since the last dry_find */
    int32_t break_begin, break_end; /* of the newest breaker; -1: there is none */
    int32_t *longest;               /* n_vocab: repetitions before each id; -1: a breaker */
    int32_t *listed, n_listed;      /* ids with another one than 0 */
};

/* ---- Settings --------------------------------------------------------------------------- */

bool dry_is_on(const struct carat_sampling *p)
{
    return p->dry_multiplier > 0.0f;
}

int dry_check_breakers(const struct carat_sampling *p, struct carat_error *err)
{
    if (!p->dry_breakers) return CARAT_OK;
    if (p->n_dry_breakers > CARAT_DRY_BREAKERS_MAX)
        return err_set(err, CARAT_EUSAGE,
                       "dry_sequence_breakers: at most %d texts expected, %zu found",
                       CARAT_DRY_BREAKERS_MAX, p->n_dry_breakers);
    for (size_t i = 0; i < p->n_dry_breakers; i++) {
        size_t length = strlen(p->dry_breakers[i]);
        if (length == 0 || length > CARAT_DRY_BREAKER_BYTES_MAX)
            return err_set(err, CARAT_EUSAGE,
                           "dry_sequence_breakers[%zu]: 1 to %d bytes expected, %zu found", i,
                           CARAT_DRY_BREAKER_BYTES_MAX, length);
    }
    return CARAT_OK;
}

static bool allocate(struct dry *d)
{
    size_t room = (size_t)d->room, n = (size_t)d->n_vocab;
    d->ids = mem_alloc(room, sizeof *d->ids);
    d->length = mem_alloc(room, sizeof *d->length);
    d->longest = mem_alloc(n, sizeof *d->longest);
    d->listed = mem_alloc(room < n ? room : n, sizeof *d->listed);
    return d->ids && d->length && d->longest && d->listed;
}

int dry_open(struct dry **out, const struct dry_options *o, struct carat_error *err)
{
    const struct carat_sampling *p = o->sampling;
    *out = NULL;
    struct dry *d = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "sampler", sizeof *d);
    int64_t n_tokens = o->n_tokens > 0 ? o->n_tokens : CARAT_DRY_TOKENS_MAX;
    int64_t window = p->dry_penalty_last_n > 0 ? p->dry_penalty_last_n : n_tokens;
    if (window > n_tokens) window = n_tokens;
    if (window > CARAT_DRY_TOKENS_MAX) window = CARAT_DRY_TOKENS_MAX;
    d->n_vocab = o->n_vocab;
    d->multiplier = (double)p->dry_multiplier;
    d->base = (double)p->dry_base;
    d->exponent_max = d->base > 1.0 ? log((double)FLT_MAX) / log(d->base) : CARAT_DRY_TOKENS_MAX;
    d->allowed = p->dry_allowed_length;
    d->window = (int32_t)window;
    d->room = (int32_t)(2 * window < n_tokens ? 2 * window : n_tokens);
    d->break_begin = -1;
    int status = dry_breaks_open(&d->breaks, p, o->vocab, err);
    if (status == CARAT_OK && !allocate(d))
        status = err_no_memory(err, "sampler", (size_t)d->room * sizeof *d->ids);
    if (status != CARAT_OK)
        dry_close(d);
    else
        *out = d;
    return status;
}

void dry_close(struct dry *d)
{
    if (!d) return;
    dry_breaks_close(d->breaks);
    mem_free(d->ids);
    mem_free(d->length);
    mem_free(d->longest);
    mem_free(d->listed);
    mem_free(d);
}

/* ---- Tokens ----------------------------------------------------------------------------- */

/* Drops all but the last `window - 1`, so that another one has room. */
static void drop_oldest(struct dry *d)
{
    int32_t kept = d->window - 1, dropped = d->n - kept;
    memmove(d->ids, d->ids + dropped, (size_t)kept * sizeof *d->ids);
    memmove(d->length, d->length + dropped, (size_t)kept * sizeof *d->length);
    d->n = kept;
    d->break_begin = d->break_begin < dropped ? -1 : d->break_begin - dropped;
    d->break_end -= dropped;
}

void dry_accept(struct dry *d, int32_t id)
{
    if (d->n == d->room) drop_oldest(d);
    d->ids[d->n++] = id;
    if (d->n_new < CARAT_DRY_TOKENS_MAX) d->n_new++;
}

static int32_t window_begin(const struct dry *d)
{
    return d->n > d->window ? d->n - d->window : 0;
}

/* The last position from `begin` on and before `end` that has this token, or -1. Blocks without it
 * are skipped after comparisons that the compiler vectorises. */
static int32_t find_back(const struct dry *d, int32_t begin, int32_t end, int32_t id)
{
    enum { BLOCK = 64 };
    if (end > begin && d->ids[end - 1] == id) return end - 1;
    while (end - begin >= BLOCK) {
        const int32_t *block = d->ids + end - BLOCK;
        int is_here = 0;
        for (int32_t i = 0; i < BLOCK; i++) is_here |= block[i] == id;
        if (is_here) break;
        end -= BLOCK;
    }
    while (end > begin)
        if (d->ids[--end] == id) return end;
    return -1;
}

/* ---- Repetitions ------------------------------------------------------------------------ */

/* One token came. Going backwards, the length before a position is still what it was before. */
static void extend_lengths(struct dry *d, int32_t begin)
{
    int32_t last = d->n - 1, id = d->ids[last];
    for (int32_t i = last; (i = find_back(d, begin, i, id)) >= 0;) {
        bool goes_on = i > begin && d->ids[i - 1] == d->ids[last - 1];
        d->length[i] = 1 + (goes_on ? d->length[i - 1] : 0);
    }
}

/* The Z algorithm, backwards. [low, high) counts from the end, as all positions here do: the
 * stretch that is known to be like the end and reaches farthest back. */
static void compute_lengths(struct dry *d, int32_t begin)
{
    int32_t last = d->n - 1, n = d->n - begin, low = 0, high = 0;
    for (int32_t i = 1; i < n; i++) {
        int32_t length = 0;
        if (i < high) {
            length = d->length[last - (i - low)];
            if (length > high - i) length = high - i;
        }
        while (i + length < n && d->ids[last - length] == d->ids[last - i - length]) length++;
        d->length[last - i] = length;
        if (i + length <= high) continue;
        low = i;
        high = i + length;
    }
}

/* Looks for a breaker that is newer than the known one. It may have begun a few tokens before
 * those that are new. */
static void find_break(struct dry *d, int32_t begin)
{
    int32_t oldest = d->n - d->n_new - DRY_TAIL_MAX;
    if (oldest < begin) oldest = begin;
    if (d->break_begin < begin) d->break_begin = -1;
    if (oldest < d->break_begin) oldest = d->break_begin;
    for (int32_t i = d->n - 1; i >= oldest; i--) {
        int32_t n = dry_breaks_after(d->breaks, d->ids[i], d->ids + i + 1, d->n - i - 1);
        if (n < 0) continue;
        d->break_begin = i;
        d->break_end = i + 1 + n;
        return;
    }
}

static void clear_list(struct dry *d)
{
    for (int32_t i = 0; i < d->n_listed; i++) d->longest[d->listed[i]] = 0;
    d->n_listed = 0;
}

static void list(struct dry *d, int32_t id, int32_t length)
{
    int32_t *longest = &d->longest[id];
    if (*longest == 0) {
        d->listed[d->n_listed++] = id;
        if (dry_breaks_within(d->breaks, id)) *longest = -1;
    }
    if (*longest >= 0 && *longest < length) *longest = length;
}

/* Lists the tokens after all positions where repetitions end. */
static void list_followers(struct dry *d, int32_t begin)
{
    int32_t last = d->n - 1, most = d->n - begin;
    if (d->break_begin >= 0) most = d->n - d->break_end;
    if (most < d->allowed) return;
    for (int32_t i = last; (i = find_back(d, begin, i, d->ids[last])) >= 0;) {
        int32_t length = d->length[i];
        if (length > i + 1 - begin) length = i + 1 - begin; /* the rest is not looked at any more */
        if (length > most) length = most;
        if (length >= d->allowed) list(d, d->ids[i + 1], length);
    }
}

void dry_find(struct dry *d)
{
    if (d->n_new == 0) return;
    int32_t begin = window_begin(d);
    clear_list(d);
    find_break(d, begin);
    if (d->n_new == 1 && d->n > 1)
        extend_lengths(d, begin);
    else
        compute_lengths(d, begin);
    d->n_new = 0;
    list_followers(d, begin);
}

float dry_penalty(const struct dry *d, int32_t id)
{
    if (d->longest[id] <= 0) return 0.0f;
    double exponent = d->longest[id] - d->allowed;
    if (exponent > d->exponent_max) exponent = d->exponent_max;
    double penalty = d->multiplier * pow(d->base, exponent);
    return (float)(penalty < penalty_max ? penalty : penalty_max);
}

const int32_t *dry_ids(const struct dry *d, int32_t *n)
{
    *n = d->n_listed;
    return d->listed;
}
