/* Where a rule is complete, its frame says where to go on. A frame that was pushed while nothing
 * has been taken yet must not be popped: a call is never empty, and a free way leads around each
 * call that may be (program_analyse). Together with left.c this keeps pushing finite. */
#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    FRAME_SLOTS = 2 * MACHINE_FRAMES_MAX,
    STATE_SLOTS = 4 * MACHINE_STATES_MAX,
    VISITED_SLOTS = 4 * MACHINE_WIDTH_MAX,
    NO_FRAME = 0, /* under the root rule */
};

struct frame {
    uint32_t to;     /* where to go on */
    uint32_t repeat; /* a repetition that counts, or NOWHERE */
    uint32_t count;  /* of it: complete items */
    uint32_t parent;
    uint32_t depth;
};

/* A configuration as a number: its frame, then its position. COMPLETE stands for the end. */
typedef uint64_t config;
#define COMPLETE ((config)NOWHERE)

struct visit {
    config config;
    uint32_t stamp; /* of the step in which it was seen */
    bool is_fresh;
};

struct task {
    config config;
    bool is_fresh; /* its frame was pushed in this step */
};

struct machine {
    const struct program *p;
    struct frame *frames;
    uint32_t *frame_slots;
    struct machine_state *states;
    uint32_t *state_slots;
    uint16_t (*next)[256]; /* states: state after a byte; 0: not known */
    config *configs;
    uint32_t n_frames, n_states, n_configs;
    uint32_t *map;   /* compacting: new numbers of frames */
    uint16_t *moved; /* compacting: marks, then new numbers of states; 0: not kept */
    /* One step. */
    struct visit *visited;
    struct task *tasks;
    config *found;
    uint32_t stamp, n_tasks, n_seen, n_found;
    bool is_full, was_cut;
};

static uint32_t position_of(config c)
{
    return (uint32_t)c;
}

static uint32_t frame_of(config c)
{
    return (uint32_t)(c >> 32);
}

static config make_config(uint32_t position, uint32_t frame)
{
    return (config)frame << 32 | position;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* ---- Opening ---------------------------------------------------------------------------- */

static void forget_all(struct machine *m)
{
    m->n_frames = 1; /* NO_FRAME */
    m->n_states = MACHINE_FIRST;
    m->n_configs = 0;
    m->states[MACHINE_DEAD] = (struct machine_state){0};
    for (unsigned i = 0; i < 256; i++) m->next[MACHINE_DEAD][i] = MACHINE_DEAD;
}

int machine_open(struct machine **out, const struct program *p, struct carat_error *err)
{
    *out = NULL;
    struct machine *m = mem_alloc(1, sizeof *m);
    if (!m) return err_no_memory(err, "grammar", sizeof *m);
    m->p = p;
    m->frames = mem_alloc(MACHINE_FRAMES_MAX, sizeof *m->frames);
    m->frame_slots = mem_alloc(FRAME_SLOTS, sizeof *m->frame_slots);
    m->states = mem_alloc(MACHINE_STATES_MAX, sizeof *m->states);
    m->state_slots = mem_alloc(STATE_SLOTS, sizeof *m->state_slots);
    m->next = mem_alloc(MACHINE_STATES_MAX, sizeof *m->next);
    m->configs = mem_alloc(MACHINE_CONFIGS_MAX, sizeof *m->configs);
    m->map = mem_alloc(MACHINE_FRAMES_MAX, sizeof *m->map);
    m->moved = mem_alloc(MACHINE_STATES_MAX, sizeof *m->moved);
    m->visited = mem_alloc(VISITED_SLOTS, sizeof *m->visited);
    m->tasks = mem_alloc(VISITED_SLOTS, sizeof *m->tasks);
    m->found = mem_alloc(MACHINE_WIDTH_MAX, sizeof *m->found);
    if (!m->frames || !m->frame_slots || !m->states || !m->state_slots || !m->next || !m->configs ||
        !m->map || !m->moved || !m->visited || !m->tasks || !m->found) {
        machine_close(m);
        return err_no_memory(err, "grammar", MACHINE_STATES_MAX * sizeof *m->next);
    }
    forget_all(m);
    *out = m;
    return CARAT_OK;
}

void machine_close(struct machine *m)
{
    if (!m) return;
    mem_free(m->frames);
    mem_free(m->frame_slots);
    mem_free(m->states);
    mem_free(m->state_slots);
    mem_free(m->next);
    mem_free(m->configs);
    mem_free(m->map);
    mem_free(m->moved);
    mem_free(m->visited);
    mem_free(m->tasks);
    mem_free(m->found);
    mem_free(m);
}

/* ---- Equal things exist once ------------------------------------------------------------ */

static uint64_t frame_hash(const struct frame *f)
{
    return mix(mix((uint64_t)f->to << 32 | f->parent) ^ ((uint64_t)f->repeat << 32 | f->count));
}

/* The slot that holds the number of an equal frame, or the free one for it. */
static uint32_t *frame_slot(struct machine *m, const struct frame *f)
{
    uint32_t i = (uint32_t)frame_hash(f) % FRAME_SLOTS;
    while (m->frame_slots[i]) {
        const struct frame *other = &m->frames[m->frame_slots[i]];
        if (other->to == f->to && other->parent == f->parent && other->repeat == f->repeat &&
            other->count == f->count)
            break;
        i = (i + 1) % FRAME_SLOTS;
    }
    return &m->frame_slots[i];
}

/* The number of a frame on top of `parent`; NO_FRAME if that is not possible. */
static uint32_t push(struct machine *m, uint32_t parent, uint32_t to, uint32_t repeat,
                     uint32_t count)
{
    struct frame f = {.to = to,
                      .repeat = repeat,
                      .count = count,
                      .parent = parent,
                      .depth = parent == NO_FRAME ? 1 : m->frames[parent].depth + 1};
    if (f.depth > MACHINE_DEPTH_MAX) {
        m->was_cut = true;
        return NO_FRAME;
    }
    uint32_t *slot = frame_slot(m, &f);
    if (*slot) return *slot;
    if (m->n_frames == MACHINE_FRAMES_MAX) {
        m->is_full = true;
        return NO_FRAME;
    }
    m->frames[m->n_frames] = f;
    return *slot = m->n_frames++;
}

static uint32_t *state_slot(struct machine *m, const config *configs, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) hash = mix(hash ^ configs[i]);
    uint32_t i = (uint32_t)hash % STATE_SLOTS;
    while (m->state_slots[i]) {
        const struct machine_state *s = &m->states[m->state_slots[i]];
        if (s->n_configs == n &&
            memcmp(m->configs + s->first_config, configs, n * sizeof *configs) == 0)
            break;
        i = (i + 1) % STATE_SLOTS;
    }
    return &m->state_slots[i];
}

/* ---- A step ----------------------------------------------------------------------------- */

static void begin(struct machine *m)
{
    m->stamp++;
    m->n_tasks = m->n_seen = m->n_found = 0;
    m->is_full = false;
    if (m->stamp) return;
    memset(m->visited, 0, VISITED_SLOTS * sizeof *m->visited); /* the stamps come round again */
    m->stamp = 1;
}

/* Notes a configuration to be looked at, unless it was seen in this step. */
static void add(struct machine *m, uint32_t position, uint32_t frame, bool is_fresh)
{
    config c = make_config(position, frame);
    uint32_t i = (uint32_t)mix(c * 2 + is_fresh) % VISITED_SLOTS;
    for (; m->visited[i].stamp == m->stamp; i = (i + 1) % VISITED_SLOTS)
        if (m->visited[i].config == c && m->visited[i].is_fresh == is_fresh) return;
    if (m->n_seen == VISITED_SLOTS / 2) {
        m->was_cut = true;
        return;
    }
    m->visited[i] = (struct visit){.config = c, .stamp = m->stamp, .is_fresh = is_fresh};
    m->n_seen++;
    m->tasks[m->n_tasks++] = (struct task){.config = c, .is_fresh = is_fresh};
}

static void keep(struct machine *m, config c)
{
    if (m->n_found == MACHINE_WIDTH_MAX)
        m->was_cut = true;
    else
        m->found[m->n_found++] = c;
}

static void call(struct machine *m, uint32_t rule, uint32_t frame)
{
    if (frame != NO_FRAME) add(m, m->p->rules[rule].start, frame, true);
}

/* The rule on top is complete: goes on where its frame says. */
static void pop(struct machine *m, uint32_t frame)
{
    if (frame == NO_FRAME) {
        keep(m, COMPLETE);
        return;
    }
    struct frame f = m->frames[frame];
    if (f.repeat == NOWHERE) {
        add(m, f.to, f.parent, false);
        return;
    }
    const struct repeat *r = &m->p->repeats[f.repeat];
    uint32_t count = f.count + 1;
    bool is_open = r->most == NOWHERE;
    if (count >= r->least || m->p->rules[r->rule].is_nullable) add(m, f.to, f.parent, false);
    if (!is_open && count >= r->most) return;
    if (is_open && count > r->least) count = r->least; /* more of them make no difference */
    call(m, r->rule, push(m, f.parent, f.to, f.repeat, count));
}

static void follow(struct machine *m, struct task t, const struct edge *e)
{
    uint32_t frame = frame_of(t.config);
    switch ((enum edge_kind)e->kind) {
    case EDGE_FREE: add(m, e->target, frame, t.is_fresh); break;
    case EDGE_CALL:
        if (m->p->positions[e->target].flags & POSITION_RETURN)
            add(m, m->p->rules[e->arg].start, frame, t.is_fresh);
        else
            call(m, e->arg, push(m, frame, e->target, NOWHERE, 0));
        break;
    case EDGE_REPEAT:
        call(m, m->p->repeats[e->arg].rule, push(m, frame, e->target, e->arg, 0));
        break;
    case EDGE_BYTES:
    case EDGE_TOKEN:
    case EDGE_NOT_TOKEN: break;
    }
}

/* Goes on from what was added to all configurations that take something. */
static void settle(struct machine *m)
{
    while (m->n_tasks && !m->is_full) {
        struct task t = m->tasks[--m->n_tasks];
        const struct position *at = &m->p->positions[position_of(t.config)];
        bool takes = false;
        for (uint32_t i = 0; i < at->n_edges; i++) {
            const struct edge *e = &m->p->edges[at->first_edge + i];
            takes |= e->kind == EDGE_BYTES || e->kind == EDGE_TOKEN || e->kind == EDGE_NOT_TOKEN;
            follow(m, t, e);
        }
        if (takes) keep(m, t.config);
        if ((at->flags & POSITION_FINAL) && !t.is_fresh) pop(m, frame_of(t.config));
    }
}

static int compare_configs(const void *left, const void *right)
{
    config a = *(const config *)left, b = *(const config *)right;
    return a < b ? -1 : a > b;
}

static void sort_found(struct machine *m)
{
    enum { FEW = 12 };
    if (m->n_found > FEW) {
        qsort(m->found, m->n_found, sizeof *m->found, compare_configs);
    } else {
        for (uint32_t i = 1; i < m->n_found; i++) {
            config c = m->found[i];
            uint32_t k = i;
            for (; k > 0 && m->found[k - 1] > c; k--) m->found[k] = m->found[k - 1];
            m->found[k] = c;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->n_found; i++)
        if (kept == 0 || m->found[kept - 1] != m->found[i]) m->found[kept++] = m->found[i];
    m->n_found = kept;
}

static void add_byte_range(uint64_t bytes[4], unsigned low, unsigned high)
{
    for (unsigned c = low; c <= high; c++) bytes[c / 64] |= (uint64_t)1 << c % 64;
}

static void describe(const struct machine *m, struct machine_state *s)
{
    uint8_t flags = 0;
    for (uint32_t i = 0; i < s->n_configs; i++) {
        config c = m->configs[s->first_config + i];
        if (c == COMPLETE) {
            s->is_complete = true;
            continue;
        }
        const struct position *at = &m->p->positions[position_of(c)];
        flags |= at->flags;
        for (uint32_t k = 0; k < at->n_edges; k++) {
            const struct edge *e = &m->p->edges[at->first_edge + k];
            if (e->kind == EDGE_BYTES) add_byte_range(s->bytes, e->low, e->high);
            if (e->kind == EDGE_TOKEN || e->kind == EDGE_NOT_TOKEN) s->has_tokens = true;
        }
    }
    s->is_plain = (flags & POSITION_ALL) && !(flags & POSITION_SOME);
    s->takes_plain = flags & (POSITION_ALL | POSITION_SOME);
}

/* The number of the state that was found. */
static uint32_t finish(struct machine *m)
{
    settle(m);
    if (m->is_full) return MACHINE_FULL;
    sort_found(m);
    if (m->n_found == 0) return MACHINE_DEAD;
    uint32_t *slot = state_slot(m, m->found, m->n_found);
    if (*slot) return *slot;
    if (m->n_states == MACHINE_STATES_MAX || m->n_found > MACHINE_CONFIGS_MAX - m->n_configs)
        return MACHINE_FULL;
    struct machine_state *s = &m->states[m->n_states];
    *s = (struct machine_state){.first_config = m->n_configs, .n_configs = m->n_found};
    memcpy(m->configs + m->n_configs, m->found, m->n_found * sizeof *m->found);
    m->n_configs += m->n_found;
    describe(m, s);
    memset(m->next[m->n_states], 0, sizeof m->next[m->n_states]);
    return *slot = m->n_states++;
}

uint32_t machine_start(struct machine *m)
{
    begin(m);
    add(m, m->p->rules[m->p->root].start, NO_FRAME, false);
    return finish(m);
}

uint32_t machine_byte(struct machine *m, uint32_t state, uint8_t byte)
{
    uint32_t known = m->next[state][byte];
    if (known) return known;
    const struct machine_state *s = &m->states[state];
    begin(m);
    for (uint32_t i = 0; i < s->n_configs; i++) {
        config c = m->configs[s->first_config + i];
        if (c == COMPLETE) continue;
        const struct position *at = &m->p->positions[position_of(c)];
        for (uint32_t k = 0; k < at->n_edges; k++) {
            const struct edge *e = &m->p->edges[at->first_edge + k];
            if (e->kind == EDGE_BYTES && byte >= e->low && byte <= e->high)
                add(m, e->target, frame_of(c), false);
        }
    }
    uint32_t next = finish(m);
    m->next[state][byte] = (uint16_t)next;
    return next;
}

uint32_t machine_token(struct machine *m, uint32_t state, int32_t id, bool is_stop)
{
    const struct machine_state *s = &m->states[state];
    if (!s->has_tokens) return MACHINE_DEAD;
    begin(m);
    for (uint32_t i = 0; i < s->n_configs; i++) {
        config c = m->configs[s->first_config + i];
        if (c == COMPLETE) continue;
        const struct position *at = &m->p->positions[position_of(c)];
        for (uint32_t k = 0; k < at->n_edges; k++) {
            const struct edge *e = &m->p->edges[at->first_edge + k];
            bool fits = e->kind == EDGE_TOKEN
                            ? e->arg == (uint32_t)id
                            : e->kind == EDGE_NOT_TOKEN && !is_stop && e->arg != (uint32_t)id;
            if (fits) add(m, e->target, frame_of(c), false);
        }
    }
    return finish(m);
}

uint32_t machine_either(struct machine *m, uint32_t a, uint32_t b)
{
    if (a == b || b == MACHINE_DEAD) return a;
    if (a == MACHINE_DEAD) return b;
    begin(m);
    for (unsigned i = 0; i < 2; i++) {
        const struct machine_state *s = &m->states[i ? b : a];
        for (uint32_t k = 0; k < s->n_configs; k++) keep(m, m->configs[s->first_config + k]);
    }
    return finish(m);
}

const struct machine_state *machine_state(const struct machine *m, uint32_t state)
{
    return &m->states[state];
}

bool machine_tokens(const struct machine *m, uint32_t state, machine_id_fn add_id, void *user,
                    int32_t *excluded)
{
    const struct machine_state *s = &m->states[state];
    bool takes_others = false;
    for (uint32_t i = 0; i < s->n_configs && s->has_tokens; i++) {
        config c = m->configs[s->first_config + i];
        if (c == COMPLETE) continue;
        const struct position *at = &m->p->positions[position_of(c)];
        for (uint32_t k = 0; k < at->n_edges; k++) {
            const struct edge *e = &m->p->edges[at->first_edge + k];
            if (e->kind == EDGE_TOKEN) add_id(user, (int32_t)e->arg);
            if (e->kind != EDGE_NOT_TOKEN) continue;
            if (takes_others && *excluded != (int32_t)e->arg)
                *excluded = -1;
            else
                *excluded = (int32_t)e->arg;
            takes_others = true;
        }
    }
    return takes_others;
}

bool machine_was_cut(const struct machine *m)
{
    return m->was_cut;
}

/* ---- Compacting ------------------------------------------------------------------------- */

void machine_mark(struct machine *m, uint32_t state)
{
    if (state >= MACHINE_FIRST) m->moved[state] = 1;
}

uint32_t machine_moved(const struct machine *m, uint32_t state)
{
    return state >= MACHINE_FIRST ? m->moved[state] : state;
}

/* Marks the frames of the states that are marked, then moves them together. Parents have lower
 * numbers, so one pass will do, and the order of configurations stays. */
static void move_frames(struct machine *m)
{
    memset(m->map, 0, m->n_frames * sizeof *m->map);
    for (uint32_t i = MACHINE_FIRST; i < m->n_states; i++) {
        const struct machine_state *s = &m->states[i];
        for (uint32_t k = 0; m->moved[i] && k < s->n_configs; k++)
            for (uint32_t f = frame_of(m->configs[s->first_config + k]); f && !m->map[f];
                 f = m->frames[f].parent)
                m->map[f] = 1;
    }
    uint32_t kept = 1;
    memset(m->frame_slots, 0, FRAME_SLOTS * sizeof *m->frame_slots);
    for (uint32_t f = 1; f < m->n_frames; f++) {
        if (!m->map[f]) continue;
        m->frames[kept] = m->frames[f];
        m->frames[kept].parent = m->map[m->frames[f].parent];
        *frame_slot(m, &m->frames[kept]) = kept;
        m->map[f] = kept++;
    }
    m->n_frames = kept;
}

static void move_state(struct machine *m, uint32_t from)
{
    struct machine_state s = m->states[from];
    for (uint32_t k = 0; k < s.n_configs; k++) {
        config c = m->configs[s.first_config + k];
        m->configs[m->n_configs + k] = make_config(position_of(c), m->map[frame_of(c)]);
    }
    s.first_config = m->n_configs;
    m->n_configs += s.n_configs;
    m->states[m->n_states] = s;
    memset(m->next[m->n_states], 0, sizeof m->next[m->n_states]);
    *state_slot(m, m->configs + s.first_config, s.n_configs) = m->n_states;
    m->moved[from] = (uint16_t)m->n_states++;
}

void machine_compact(struct machine *m)
{
    uint32_t n = m->n_states;
    move_frames(m);
    memset(m->state_slots, 0, STATE_SLOTS * sizeof *m->state_slots);
    m->n_states = MACHINE_FIRST;
    m->n_configs = 0;
    for (uint32_t i = MACHINE_FIRST; i < n; i++)
        if (m->moved[i]) move_state(m, i);
}

void machine_forget_marks(struct machine *m)
{
    memset(m->moved, 0, MACHINE_STATES_MAX * sizeof *m->moved);
}
