/* carat_step: one forward pass for everybody. */
#include "base/os.h"
#include "engine/admit.h"
#include "engine/drafting.h"
#include "engine/limits.h"
#include "engine/masks.h"
#include "engine/request.h"
#include "engine/results.h"
#include "engine/room.h"

/* ---- Before the pass -------------------------------------------------------------------- */

/* Whether there is room for the events that this step may add. */
static int check_events(const carat_engine *e, struct carat_error *err)
{
    int32_t n_live = 0;
    for (int32_t i = 0; i < e->end; i++) n_live += e->requests[i].state != SEQUENCE_FREE;
    int32_t n_run = n_live < e->paging.n_seq ? n_live : e->paging.n_seq;
    int32_t most = n_live + (EVENTS_PER_SLOT - 1) * n_run + engine_draft_rows(e);
    if (events_room(&e->events) >= most) return CARAT_OK;
    return err_set(err, CARAT_EBUSY, "events of the last step have not been taken");
}

static void end_unwanted(carat_engine *e)
{
    double now = os_seconds();
    for (int32_t i = e->end; i-- > 0;) {
        struct sequence *s = &e->requests[i];
        if (s->state == SEQUENCE_FREE) continue;
        if (cancel_is_wanted(&e->cancels[i], s->request))
            request_end(e, s, CARAT_FINISH_CANCELLED, NULL);
        else if (s->deadline > 0 && now >= s->deadline)
            request_end(e, s, CARAT_FINISH_DEADLINE, NULL);
    }
}

/* Of a prompt that others wait for, only the rows up to the awaited position count in the order. */
static void note_followers(carat_engine *e, int32_t n)
{
    for (int32_t i = 0; i < e->end; i++) {
        const struct sequence *s = &e->requests[i];
        if (s->state != SEQUENCE_WAITING) continue;
        for (int32_t k = 0; k < n; k++) {
            int32_t near = s->wait_position - e->whose[k]->n_cached;
            if (e->whose[k]->request == s->leader_request && near < e->items[k].near)
                e->items[k].near = near;
        }
    }
}

/* Whether rows of this state have a place in the step. Where prompts are apart they take turns with
 * those who decode. */
static bool has_turn(const carat_engine *e, enum sequence_state state)
{
    bool there[SEQUENCE_DECODE + 1] = {false};
    for (int32_t i = 0; e->is_apart && i < e->paging.n_seq; i++)
        if (e->slots[i] && !e->slots[i]->is_paused) there[e->slots[i]->state] = true;
    if (!there[SEQUENCE_PREFILL] || !there[SEQUENCE_DECODE]) return true;
    return (state == SEQUENCE_DECODE) == e->has_read;
}

/* Leaves out some of those who decode if more tokens come in shifts. Those left out last time are
 * the last to be left out again. */
static void leave_out(carat_engine *e, struct pace_step *rows)
{
    int32_t left = rows->n_decode - shifts_rows(&e->shifts, rows->n_decode);
    while (left > 0) {
        struct sequence *s = e->slots[e->next_left];
        e->next_left = (e->next_left + 1) % e->paging.n_seq;
        if (!s || s->n_rows == 0) continue;
        s->n_rows = 0;
        rows->n_decode--;
        rows->decode_positions -= s->n_cached;
        left--;
    }
}

/* Shares out rows: one for everybody who decodes, the rest for prompts. Fills in n_rows. */
static struct pace_step share_rows(carat_engine *e)
{
    bool reads = has_turn(e, SEQUENCE_PREFILL), decodes = has_turn(e, SEQUENCE_DECODE);
    struct pace_step rows = {.is_awaited = !decodes};
    uint64_t least = fairness_least(&e->fairness);
    int32_t n = 0, chunk = e->runner->layout.chunk;
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        if (!s) continue;
        bool is_decoding = s->state == SEQUENCE_DECODE;
        bool has_rows = !s->is_paused && (is_decoding ? decodes : reads);
        s->n_rows = has_rows && is_decoding;
        s->draft.n = s->draft.found = 0;
        if (!has_rows) continue;
        if (s->state == SEQUENCE_PREFILL) {
            e->items[n] = request_item(e, s, least);
            e->whose[n++] = s;
        } else {
            rows.n_decode++;
            rows.decode_positions += s->n_cached;
        }
    }
    if (n == 0) leave_out(e, &rows);
    int32_t most = e->step_rows - rows.n_decode;
    e->has_read = reads;
    note_followers(e, n);
    rows_choose(&e->pace, &rows, e->items, n, most < chunk ? most : chunk, e->order);
    for (int32_t k = 0; k < n; k++) e->whose[k]->n_rows = e->items[k].rows;
    return rows;
}

/* What the step really has, after pages were taken. */
static struct pace_step count_rows(const carat_engine *e)
{
    struct pace_step rows = {0};
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        const struct sequence *s = e->slots[i];
        if (!s || s->n_rows == 0) continue;
        if (s->state == SEQUENCE_DECODE) {
            rows.n_decode += s->n_rows;
            rows.decode_positions += s->n_rows * (double)s->n_cached;
        } else {
            rows.n_prompt += s->n_rows;
            rows.prompt_positions += s->n_rows * (s->n_cached + 0.5 * s->n_rows);
        }
    }
    return rows;
}

static void note_start(carat_engine *e, double now)
{
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        if (s && s->n_rows > 0 && s->started <= 0) s->started = now;
    }
}

/* ---- The pass --------------------------------------------------------------------------- */

/* When the device is lost, all requests end: those that run and those that wait. */
static void end_all(carat_engine *e)
{
    for (int32_t i = e->end; i-- > 0;)
        if (e->requests[i].state != SEQUENCE_FREE)
            request_end(e, &e->requests[i], CARAT_FINISH_ERROR, e->runner->loss.message);
}

static int run(carat_engine *e, struct carat_error *err)
{
    TRY(runner_start(e->runner, &e->step, err));
    TRY(masks_search(e, err));
    TRY(runner_wait(e->runner, err));
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        if (!s || s->n_rows == 0) continue;
        fairness_charge(&e->fairness, s->key, s->n_rows);
        TRY(results_take(e, s, err));
    }
    return CARAT_OK;
}

/* Time that the caller takes between two steps counts too, because it delays tokens, but at most a
 * tenth of the step's own time. Time of a drafter is measured apart. */
static void note_end(carat_engine *e, const struct pace_step *rows, double begin)
{
    double end = os_seconds(), seconds = end - begin - e->drafting_seconds;
    double since = e->step_end > 0 ? end - e->step_end - e->drafting_seconds : seconds;
    double counted = since < 1.1 * seconds ? since : 1.1 * seconds;
    pace_note(&e->pace, rows, counted);
    if (rows->n_prompt == 0) shifts_note(&e->shifts, rows->n_decode, counted);
    e->step_end = engine_has_work(e) ? end : 0;
    e->stats.steps++;
    e->stats.rows += (uint64_t)(rows->n_decode + rows->n_prompt);
    e->stats.prompt_rows += (uint64_t)rows->n_prompt;
}

/* The rows of the step, with pages for them. */
static int fill_step(carat_engine *e, struct pace_step *rows, struct carat_error *err)
{
    *rows = share_rows(e);
    e->drafting_seconds = 0;
    TRY(drafting_add(e, rows, err));
    room_take(e);
    *rows = count_rows(e);
    batch_fill(&e->step, e->slots, e->paging.n_seq, e->runner->layout.chunk);
    return CARAT_OK;
}

int carat_step(carat_engine *e, struct carat_error *err)
{
    struct pace_step rows;
    double begin = os_seconds();
    TRY(runner_check(e->runner, err));
    TRY(check_events(e, err));
    end_unwanted(e);
    admit_requests(e);
    int status = fill_step(e, &rows, err);
    if (!status && e->step.n_token == 0) return engine_has_work(e);
    note_start(e, begin);
    if (!status) status = run(e, err);
    if (status)
        end_all(e);
    else
        note_end(e, &rows, begin);
    return status ? status : engine_has_work(e);
}
