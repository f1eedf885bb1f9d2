/* What guesses (engine/draft.h) are worth for an answer that is known: replays it token by token,
 * as if a model had written it after the prompt. No model runs; of the file only the vocabulary is
 * used.
 *
 * usage: build/release/bench/drafts MODEL PROMPT ANSWER
 *
 * PROMPT and ANSWER are text files. One line for each cost of a row, as a share of a step's time:
 * tokens in a step, guesses in a step, the share that is right, and the speed without guesses
 * = 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "carat.h"
#include "engine/draft.h"

struct replay {
    int32_t *ids, *room; /* the whole text; what is known of it, and guesses */
    int32_t n_prompt, n;
};

struct outcome {
    int32_t steps, guesses, right;
    double seconds; /* a step of one row takes 1 */
};

static struct outcome replay(const struct replay *r, double cost)
{
    struct outcome out = {0};
    struct draft d;
    struct draft_chances all;
    double times[1 + CARAT_DRAFT_MAX];
    draft_begin(&all);
    draft_init(&d, &all);
    for (int32_t i = 0; i <= CARAT_DRAFT_MAX; i++) times[i] = 1 + cost * i;
    memcpy(r->room, r->ids, (size_t)r->n_prompt * sizeof *r->ids);
    for (int32_t n = r->n_prompt; n < r->n;) {
        struct draft *one = &d;
        int32_t most = r->n - n - 1, right = 0;
        if (most > CARAT_DRAFT_MAX) most = CARAT_DRAFT_MAX;
        draft_find(&d, r->room, n, most);
        draft_share(&one, 1, 1, times, most);
        while (right < d.n && r->room[n + right] == r->ids[n + right]) right++;
        bool is_next_right =
            right == d.n && right < d.found && r->room[n + right] == r->ids[n + right];
        draft_note(&d, &all, right + is_next_right);
        memcpy(r->room + n, r->ids + n, (size_t)(right + 1) * sizeof *r->ids);
        n += right + 1;
        out.steps++;
        out.guesses += d.n;
        out.right += right;
        out.seconds += times[d.n];
    }
    return out;
}

static int fail(const struct carat_error *err)
{
    fprintf(stderr, "%s\n", err->message);
    return 1;
}

/* Appends the ids of a file's text. */
static int add_text(const carat_model *model, const char *path, struct replay *r,
                    struct carat_error *err)
{
    struct buf text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    if (file_read_bounded(path, 0, 1 << 24, &text) != FILE_WHOLE)
        return err_set(err, CARAT_EIO, "%s: cannot be read", path);
    int status = carat_tokenize(model, buf_text(&text), text.length, CARAT_SPECIAL_NONE, false,
                                &ids, &n, err);
    buf_deinit(&text);
    if (status) return status;
    int32_t *all = mem_alloc((size_t)r->n + n, sizeof *all);
    if (!all) return CARAT_EMEMORY;
    if (r->n) memcpy(all, r->ids, (size_t)r->n * sizeof *all);
    if (n) memcpy(all + r->n, ids, n * sizeof *all);
    carat_free(ids);
    mem_free(r->ids);
    r->ids = all;
    r->n += (int32_t)n;
    return CARAT_OK;
}

int main(int argc, char **argv)
{
    static const double costs[] = {0.03, 0.06, 0.15, 0.4, 1};
    struct carat_error err = {0};
    struct replay r = {0};
    carat_model *model;
    if (argc != 4) {
        fprintf(stderr, "usage: drafts MODEL PROMPT ANSWER\n");
        return 2;
    }
    if (carat_model_open(&model, argv[1], &err)) return fail(&err);
    if (add_text(model, argv[2], &r, &err)) return fail(&err);
    r.n_prompt = r.n;
    if (add_text(model, argv[3], &r, &err)) return fail(&err);
    r.room = mem_alloc((size_t)r.n + CARAT_DRAFT_MAX, sizeof *r.room);
    if (!r.room) return 1;
    printf("prompt %d tokens, answer %d\n", r.n_prompt, r.n - r.n_prompt);
    printf("%8s %12s %14s %8s %8s\n", "cost", "tokens/step", "guesses/step", "right", "speed");
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        struct outcome o = replay(&r, costs[i]);
        int32_t n = r.n - r.n_prompt;
        printf("%8.2f %12.2f %14.2f %7.0f%% %8.2f\n", costs[i], (double)n / o.steps,
               (double)o.guesses / o.steps, o.guesses ? 100.0 * o.right / o.guesses : 0,
               n / o.seconds);
    }
    mem_free(r.ids);
    mem_free(r.room);
    carat_model_close(model);
    return 0;
}
