#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/profile.h"
#include "backend/cpu/program.h"
#include "backend/host.h"
#include "base/allowance.h"
#include "base/assert.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/topology.h"

enum { THREADS_MAX = 512 };

/* Rows of a worker that go through row steps together: with E4B they take up to half a megabyte. */
enum { CHAIN_ROWS = 4 };

static int cpu_count(void)
{
    return 1;
}

static int cpu_isa_probe(const char *name, struct carat_error *err)
{
    const struct cpu_kernels *kernels;
    return cpu_kernels_find(&kernels, name, err);
}

static void cpu_close(struct device *device)
{
    for (struct slab *next, *slab = device->slabs; slab; slab = next) {
        next = slab->next;
        os_pages_give(slab->memory, slab->bytes);
        mem_free(slab);
    }
    pool_close(device->pool);
    mem_free(device->profile);
    mem_free(device);
}

/* Workers spin longer than a GPU takes for a layer without its experts: waking a sleeping worker
 * costs 23 us, in each layer of each token. */
static const double TURN_SECONDS = 500e-6;

static int cpu_open(struct device **out, int index, const struct device_options *options,
                    struct carat_error *err)
{
    *out = NULL;
    if (index != 0) return err_set(err, CARAT_EDEVICE, "cpu: device 0 expected, %d asked", index);
    int n_threads = options->n_threads ? options->n_threads : allowed_threads();
    if (n_threads < 1 || n_threads > THREADS_MAX)
        return err_set(err, CARAT_EUSAGE, "threads: 1 to %d expected, %d found", THREADS_MAX,
                       n_threads);
    const struct cpu_kernels *kernels;
    TRY(cpu_kernels_find(&kernels, options->isa, err));
    struct device *d = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "device", sizeof *d);
    char model[64];
    os_cpu_name(model, sizeof model);
    d->kernels = kernels;
    d->is_exact = options->is_exact;
    d->has_bf16 = kernels->bf16_dot && !options->is_exact && !options->is_steady;
    d->is_automatic = options->n_threads == 0;
    d->observe = options->observe;
    d->observe_user = options->observe_user;
    struct topology topology;
    topology_read(&topology, "", NULL);
    d->nodes = topology.n_nodes > 1 ? topology.nodes : 0;
    snprintf(d->name, sizeof d->name, "%s, %s, %d thread%s", model, d->kernels->name, n_threads,
             n_threads == 1 ? "" : "s");
    struct pool_options pool = {.n_threads = n_threads,
                                .is_pinned = options->is_pinned,
                                .patience = options->takes_turns ? TURN_SECONDS : 0};
    int status = pool_open(&d->pool, &pool, err);
    if (!status && options->is_profiled) {
        d->profile = mem_alloc(1, sizeof *d->profile);
        if (!d->profile) status = err_no_memory(err, "profile", sizeof *d->profile);
    }
    if (status)
        cpu_close(d);
    else
        *out = d;
    return status;
}

static void cpu_describe(const struct device *device, struct device_facts *out)
{
    host_describe(device->name, out);
}

static bool cpu_supports(enum op_code op, enum format format)
{
    if (op == OP_ATTENTION || op == OP_KV_WRITE) return format != FORMAT_BF16;
    return op < OP_COUNT && format < FORMAT_COUNT;
}

/* What all workers read (weights, caches) is spread over the memory of all nodes, so that every
 * worker reads with the bandwidth of all. Otherwise it would lie near the thread that fills it. */
static void *take_pages(const struct device *device, size_t bytes)
{
    enum { SPREAD_LEAST = 16 << 20 };
    void *pages = os_pages_take(bytes);
    if (pages && device->nodes && bytes >= SPREAD_LEAST)
        os_pages_spread(pages, bytes, device->nodes); /* a hint */
    return pages;
}

/* Memory is mapped as pages: untouched pages cost nothing, huge pages are fast. The size is kept
 * one cache line in front of the memory. */
enum { HEADER = 64 };

static int cpu_alloc(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    char *pages = take_pages(device, bytes + HEADER);
    if (!pages) return err_no_memory(err, "cpu", bytes);
    *(size_t *)(void *)pages = bytes + HEADER;
    *out = pages + HEADER;
    return CARAT_OK;
}

static void cpu_free(struct device *device, void *memory)
{
    (void)device;
    if (!memory) return;
    char *pages = (char *)memory - HEADER;
    os_pages_give(pages, *(size_t *)(void *)pages);
}

/* bind fills the weights that products use; tables that are only looked up stay in the mapped
 * file. */
static int cpu_weight_load(struct device *device, struct weight *weight, struct carat_error *err)
{
    (void)device;
    struct cpu_weight *w = mem_alloc(1, sizeof *w);
    if (!w) return err_no_memory(err, weight->name, sizeof *w);
    w->source = weight;
    w->rows = weight->data;
    w->matrix_bytes = weight->expert_bytes;
    weight->device_data = w;
    return CARAT_OK;
}

static void cpu_weight_unload(struct device *device, struct weight *weight)
{
    (void)device; /* tiles live as long as the device */
    mem_free(weight->device_data);
    weight->device_data = NULL;
}

/* ---- Programs --------------------------------------------------------------------------- */

/* Offsets of the parts of a program's scratch memory. */
struct scratch_layout {
    size_t act, bf16, partial, routed, turns, worker, worker_bytes, total;
};

/* The most that one op of the plan needs of each part. */
struct scratch_needs {
    size_t act_values, bf16_values, worker_bytes, partial_floats, routed_integers, turn_floats;
};

static void raise_to(size_t *most, size_t value)
{
    if (value > *most) *most = value;
}

static bool turn_alike(const struct op *a, const struct op *b)
{
    return a->code == OP_ROPE && b->code == OP_ROPE && a->p.rope.inv_freq == b->p.rope.inv_freq &&
           a->p.rope.head_dim == b->p.rope.head_dim && a->p.rope.ahead == b->p.rope.ahead;
}

/* Floats for the cosines and sines of the plan's tokens, for this ROPE and all with the same
 * frequencies. */
static size_t turn_floats(const struct plan *plan, const struct op *op)
{
    return (size_t)plan->rows_max[ROWS_TOKEN] * (size_t)op->p.rope.head_dim;
}

/* Whether a product takes two numbers for each activation, where others take one: fine products do,
 * and in bf16 those with float weights. */
static bool takes_sums(const struct device *device, const struct op *op)
{
    return op_is_fine(op) ||
           (op_may_be_bf16(device, op) && format_is_float(op_product(op)->format));
}

static void add_needs(const struct device *device, const struct plan *plan, const struct op *op,
                      struct scratch_needs *needs)
{
    size_t rows = (size_t)plan->rows_max[ROWS_TOKEN];
    raise_to(&rows, (size_t)plan->rows_max[ROWS_OUT]);
    const struct weight *w = op_product(op);
    buf_id shown = op->code == OP_EMBED ? op->out[0] : op->in[0];
    switch ((enum op_code)op->code) {
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT:
        raise_to(&needs->routed_integers,
                 (size_t)w->n_expert + 1 + rows * (size_t)op->p.expert.n_used);
        /* fall through */
    case OP_MATMUL:
        if (op_is_fine(op)) rows *= 2;
        raise_to(&needs->act_values, rows * (size_t)plan_buf_at(plan, op->in[0])->cols);
        if (op->code == OP_MATMUL)
            raise_to(&needs->bf16_values,
                     (size_t)bf16_size(plan->rows_max[ROWS_TOKEN], w->cols) * 2);
        raise_to(&needs->worker_bytes, cpu_matmul_worker_bytes(device, op));
        break;
    case OP_ATTENTION:
        raise_to(&needs->worker_bytes, cpu_attention_worker_bytes(plan, op));
        raise_to(&needs->partial_floats, cpu_attention_partial_floats(plan, op));
        break;
    case OP_EMBED: /* the wanted columns, and up to a block on each side */
    case OP_ROUTE:
        raise_to(&needs->worker_bytes,
                 ((size_t)plan_buf_at(plan, shown)->cols + 512) * sizeof(float));
        break;
    case OP_ROPE:
        for (const struct op *before = plan->ops; before < op; before++)
            if (turn_alike(before, op)) return;
        needs->turn_floats += turn_floats(plan, op);
        break;
    default: break;
    }
}

static struct scratch_layout lay_out_scratch(const struct device *device, const struct plan *plan)
{
    struct scratch_needs needs = {0};
    struct scratch_layout y = {0};
    for (int32_t i = 0; i < plan->n_ops; i++) add_needs(device, plan, &plan->ops[i], &needs);
    y.bf16 = y.act + whole_lines(needs.act_values / BLOCK_COLS * sizeof(struct act_block));
    y.partial = y.bf16;
    if (device->has_bf16) y.partial += whole_lines(needs.bf16_values * sizeof(uint16_t));
    y.routed = y.partial + whole_lines(needs.partial_floats * sizeof(float));
    y.turns = y.routed + whole_lines(needs.routed_integers * sizeof(int32_t));
    y.worker = y.turns + whole_lines(needs.turn_floats * sizeof(float));
    y.worker_bytes = whole_lines(needs.worker_bytes + 1);
    y.total = y.worker + y.worker_bytes * (size_t)pool_threads(device->pool);
    return y;
}

static size_t cpu_scratch_bytes(const struct device *device, const struct plan *plan)
{
    return lay_out_scratch(device, plan).total;
}

static void cut_scratch(struct program *p, char *base)
{
    struct scratch_layout y = lay_out_scratch(p->device, p->plan);
    p->scratch = (struct scratch){
        .act = (struct act_block *)(void *)(base + y.act),
        .bf16 = (uint16_t *)(void *)(base + y.bf16),
        .partial = (float *)(void *)(base + y.partial),
        .routed = (int32_t *)(void *)(base + y.routed),
        .turns = (float *)(void *)(base + y.turns),
        .worker = base + y.worker,
        .worker_bytes = y.worker_bytes,
    };
}

static void cpu_unbind(struct program *program)
{
    if (!program) return;
    mem_free(program->steps);
    mem_free(program->shares);
    mem_free(program->begun);
    mem_free(program);
}

static float *buffer_at(const struct plan *plan, void *memory, buf_id id)
{
    if (id == BUF_NONE) return NULL;
    return (float *)(void *)((char *)memory + plan_buf_at(plan, id)->offset);
}

static int32_t buf_cols(const struct plan *plan, buf_id id)
{
    return id == BUF_NONE ? 0 : plan_buf_at(plan, id)->cols;
}

static bool overlaps(const struct plan *plan, buf_id a, buf_id b)
{
    const struct plan_buf *x = plan_buf_at(plan, a), *y = plan_buf_at(plan, b);
    return x->offset < y->offset + plan_buf_bytes(plan, b) &&
           y->offset < x->offset + plan_buf_bytes(plan, a);
}

/* Whether an output of `op` overlaps a buffer of `before` otherwise than row on row. Then a worker
 * that is ahead would overwrite what another still reads. */
static bool overwrites(const struct plan *plan, const struct op *op, const struct op *before)
{
    buf_id old[5] = {before->in[0], before->in[1], before->in[2], before->out[0], before->out[1]};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++) {
            buf_id new_id = op->out[i], old_id = old[j];
            if (new_id == BUF_NONE || old_id == BUF_NONE || new_id == old_id) continue;
            const struct plan_buf *x = plan_buf_at(plan, new_id), *y = plan_buf_at(plan, old_id);
            bool row_on_row = x->offset == y->offset && x->cols == y->cols && x->rows == y->rows;
            if (overlaps(plan, new_id, old_id) && !row_on_row) return true;
        }
    return false;
}

/* Row steps over the same rows need no barrier between them, as each worker goes on with its own
 * rows. Looks back to the last barrier. */
static bool follows_by_row(const struct program *p, const struct cpu_step *s)
{
    if (s->sharing != BY_ROW) return false;
    for (int32_t i = p->n_steps - 1; i >= 0; i--) {
        const struct cpu_step *before = &p->steps[i];
        if (before->sharing != BY_ROW || before->rows != s->rows ||
            overwrites(p->plan, s->op, before->op))
            return false;
        if (before->needs_barrier) return true;
    }
    return true;
}

static struct cpu_step *add_step(struct program *p, const struct op *op, void *memory,
                                 cpu_step_fn run, enum step_sharing sharing)
{
    carat_assert(p->n_steps < p->steps_capacity);
    const struct plan *plan = p->plan;
    struct cpu_step *s = &p->steps[p->n_steps];
    *s = (struct cpu_step){
        .run = run,
        .op = op,
        .program = p,
        .sharing = sharing,
        .rows = plan_buf_at(plan, op->out[0] == BUF_NONE ? op->in[0] : op->out[0])->rows,
        .x_cols = buf_cols(plan, op->in[0]),
        .x1_cols = buf_cols(plan, op->in[1]),
        .y_cols = buf_cols(plan, op->out[0]),
        .x0 = buffer_at(plan, memory, op->in[0]),
        .x1 = buffer_at(plan, memory, op->in[1]),
        .x2 = buffer_at(plan, memory, op->in[2]),
        .y0 = buffer_at(plan, memory, op->out[0]),
        .y1 = buffer_at(plan, memory, op->out[1]),
        .share = &p->shares[p->n_steps]};
    s->needs_barrier = p->n_steps > 0 && !follows_by_row(p, s);
    p->n_steps++;
    return s;
}

/* Which activations the scratch holds rounded at this point of the program. */
struct rounded {
    buf_id id;
    int64_t cols;
    bool is_fine;
    bool has_bf16;  /* rows of prompts are in bf16, others in 8 bits */
    bool has_bytes; /* the rows in 8 bits were made: float weights do not take them */
};

static bool serves(const struct rounded *held, const struct rounded *wanted)
{
    return held->id == wanted->id && held->cols == wanted->cols &&
           held->has_bf16 == wanted->has_bf16 && held->is_fine >= wanted->is_fine &&
           held->has_bytes >= wanted->has_bytes;
}

/* Whether a product takes rounded activations on this device. */
static bool takes_rounded(const struct device *device, const struct op *op)
{
    const struct cpu_weight *w = op_product(op)->device_data;
    return w->tiles || (op_may_be_bf16(device, op) && weight_takes_bf16(w->source));
}

static void add_product(struct program *p, const struct op *op, void *memory, cpu_step_fn run,
                        struct rounded *held)
{
    const struct cpu_weight *w = op_product(op)->device_data;
    const struct rounded wanted = {op->in[0], w->source->cols, takes_sums(p->device, op),
                                   op_may_be_bf16(p->device, op), w->tiles != NULL};
    bool takes = takes_rounded(p->device, op);
    if (p->device->observe) add_step(p, op, memory, cpu_OBSERVE, BY_ITEM);
    bool follows = false; /* after a product of the same activations: nothing to wait for */
    if (takes && !serves(held, &wanted)) {
        struct cpu_step *s = add_step(p, op, memory, cpu_QUANTIZE, BY_ROW);
        s->y_cols = (int32_t)wanted.cols;
        s->is_fine = wanted.is_fine;
        s->has_bytes = wanted.has_bytes;
        *held = wanted;
    } else if (takes && op->code == OP_MATMUL && p->n_steps) {
        const struct cpu_step *before = &p->steps[p->n_steps - 1];
        follows = before->run == cpu_MATMUL && before->op->in[0] == op->in[0];
    }
    if (op->code != OP_MATMUL) add_step(p, op, memory, cpu_SORT_ROUTED, BY_ITEM);
    struct cpu_step *s = add_step(p, op, memory, run, BY_ITEM);
    s->is_fine = wanted.is_fine;
    if (follows) s->needs_barrier = false;
}

/* Where the cosines and sines for a ROPE are; the first ROPE with these frequencies computes
 * them. */
static const float *turns_for(struct program *p, const struct op *op, void *memory)
{
    for (int32_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].run == cpu_TURNS && turn_alike(p->steps[i].op, op)) return p->steps[i].y1;
    struct cpu_step *s = add_step(p, op, memory, cpu_TURNS, BY_ROW);
    s->rows = ROWS_TOKEN;
    s->y1 = p->scratch.turns;
    p->scratch.turns += turn_floats(p->plan, op); /* those of the next frequencies */
    return s->y1;
}

static void add_rope(struct program *p, const struct op *op, void *memory)
{
    const float *turns = turns_for(p, op, memory);
    add_step(p, op, memory, cpu_ROPE, BY_ROW)->x1 = turns;
}

static void add_op(struct program *p, const struct op *op, void *memory, struct rounded *held)
{
    static const struct {
        cpu_step_fn run;
    } steps[OP_COUNT] = {
#define X(NAME, params, meaning, budget) {cpu_##NAME},
        OP_LIST(X)
#undef X
    };
    cpu_step_fn run = steps[op->code].run;
    switch ((enum op_code)op->code) {
    case OP_MATMUL:
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: add_product(p, op, memory, run, held); break;
    case OP_ATTENTION:
        add_step(p, op, memory, run, BY_ITEM);
        add_step(p, op, memory, cpu_JOIN_SEGMENTS, BY_ITEM);
        break;
    case OP_GATHER_ROWS: /* rows change hands */
    case OP_SOFTCAP: add_step(p, op, memory, run, BY_ITEM); break;
    case OP_ROPE: add_rope(p, op, memory); break;
    case OP_INPUT:
    case OP_OUTPUT: break; /* done by the runner, between runs */
    default: add_step(p, op, memory, run, BY_ROW); break;
    }
}

/* Visits the weights of the plan's products that are not filled yet. With `memory` it fills them
 * there, one after the other; with NULL it only works out their shapes. Returns the bytes that they
 * take. */
static size_t visit_unfilled(struct device *device, const struct plan *plan, uint8_t *memory)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *source = op_product(&plan->ops[i]);
        struct cpu_weight *w = source ? source->device_data : NULL;
        if (!w || w->is_filled) continue;
        if (memory) tile_fill(w, memory + bytes, device->pool);
        if (!memory) tile_plan(w, cpu_read_ahead(device->kernels, source->format));
        bytes += w->bytes;
    }
    return bytes;
}

static int fill_weights(struct device *device, const struct plan *plan, struct carat_error *err)
{
    size_t bytes = device->is_exact ? 0 : visit_unfilled(device, plan, NULL);
    if (bytes == 0) return CARAT_OK;
    struct slab *slab = mem_alloc(1, sizeof *slab);
    if (slab) slab->memory = take_pages(device, bytes);
    if (!slab || !slab->memory) {
        mem_free(slab);
        err_no_memory(err, "weights in the form that the cpu backend computes with", bytes);
        return CARAT_EMEMORY;
    }
    slab->bytes = bytes;
    slab->next = device->slabs;
    device->slabs = slab;
    visit_unfilled(device, plan, slab->memory);
    return CARAT_OK;
}

/* Tiles of every weight that products use, each counted once. */
static void cpu_place_weights(const struct device *device, const struct plan *plan,
                              const struct room *room, struct placement *out)
{
    (void)room;
    size_t bytes = 0;
    for (int32_t i = 0; i < plan->n_ops && !device->is_exact; i++) {
        struct cpu_weight w = {.source = op_product(&plan->ops[i])};
        bool is_counted = !w.source;
        for (int32_t k = 0; k < i && !is_counted; k++)
            is_counted = op_product(&plan->ops[k]) == w.source;
        if (is_counted) continue;
        tile_plan(&w, cpu_read_ahead(device->kernels, w.source->format));
        bytes += w.bytes;
    }
    *out = (struct placement){.device_bytes = bytes};
}

static int cpu_bind(struct device *device, const struct plan *plan,
                    const struct placement *placement, void *memory, void *scratch,
                    struct program **out, struct carat_error *err)
{
    (void)placement;
    TRY(fill_weights(device, plan, err));
    struct program *p = *out = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "program", sizeof *p);
    *p = (struct program){.device = device, .plan = plan, .steps_capacity = plan->n_ops * 4};
    size_t n = (size_t)p->steps_capacity;
    p->steps = mem_alloc(n, sizeof *p->steps);
    p->shares = mem_alloc(n, sizeof *p->shares);
    if (device->profile) p->begun = mem_alloc(n, sizeof *p->begun);
    if (!p->steps || !p->shares || (device->profile && !p->begun)) {
        cpu_unbind(p);
        *out = NULL;
        return err_no_memory(err, "program", n * sizeof *p->steps);
    }
    cut_scratch(p, scratch);
    struct rounded held = {.id = BUF_NONE};
    for (int32_t i = 0; i < plan->n_ops; i++) add_op(p, &plan->ops[i], memory, &held);
    return CARAT_OK;
}

/* EMBED is left out: it tells the system of all of its rows before it reads the first. */
static bool is_chained(const struct cpu_step *s)
{
    return s->sharing == BY_ROW && s->run != cpu_EMBED;
}

/* The end of the chain that begins with step `first`: row steps without a barrier between them. For
 * a profile each step runs alone, so that its time is known. */
static int32_t chain_end(const struct program *p, int32_t first)
{
    int32_t end = first + 1;
    if (p->begun || !is_chained(&p->steps[first])) return end;
    while (end < p->n_steps && is_chained(&p->steps[end]) && !p->steps[end].needs_barrier) end++;
    return end;
}

/* Runs a chain a few rows at a time, which stay in the cache from one step to the next. */
static void run_chain(const struct program *p, int32_t first, int32_t end,
                      const struct pool_worker *worker)
{
    int32_t n_rows = cpu_step_rows(&p->steps[first]);
    struct pool_worker part = *worker;
    if (end - first > 1)
        part.n_parts = (n_rows + CHAIN_ROWS * worker->count - 1) / (CHAIN_ROWS * worker->count);
    for (part.part = 0; n_rows > 0 && part.part < part.n_parts; part.part++)
        for (int32_t i = first; i < end; i++) p->steps[i].run(&p->steps[i], &part);
}

static void walk(void *user, const struct pool_worker *worker)
{
    struct program *p = user;
    for (int32_t i = 0, end; i < p->n_steps; i = end) {
        end = chain_end(p, i);
        if (p->steps[i].needs_barrier) pool_barrier(worker);
        if (p->begun && worker->index == worker->count - 1) p->begun[i] = os_seconds();
        run_chain(p, i, end, worker);
    }
}

/* Whether barriers would cost more than one worker doing it all. A barrier costs about a
 * microsecond, and much more when another program has the core. The rates are those of one current
 * core. */
static bool is_small(const struct program *p)
{
    const struct step *step = p->step;
    int32_t context = 1;
    for (int32_t t = 0; t < step->n_token; t++)
        if (step->position[t] >= context) context = step->position[t] + 1;
    struct plan_work work = plan_step_work(p->plan, step->n_token, step->n_out, context);
    double seconds = (work.weight_bytes + work.cache_bytes) / 20e9 + work.operations / 300e9;
    return seconds < 2e-6 * p->n_steps;
}

static void cpu_run(struct program *program, const struct step *step)
{
    struct pool *pool = program->device->pool;
    program->step = step;
    for (int32_t i = 0; i < program->n_steps; i++) atomic_store(&program->shares[i].next, 0);
    struct pool_worker alone = pool_alone(pool);
    if (program->device->is_automatic && is_small(program)) {
        walk(program, &alone);
    } else {
        cores_take(pool_threads(pool));
        pool_run(pool, walk, program);
        cores_give(pool_threads(pool));
    }
    if (program->begun) cpu_profile_add(program->device->profile, program, os_seconds());
}

static int cpu_fence(struct device *device, struct carat_error *err)
{
    (void)device, (void)err;
    return CARAT_OK;
}

static void cpu_upload(struct device *device, void *memory, const void *host, size_t bytes)
{
    (void)device;
    memcpy(memory, host, bytes);
}

static void cpu_download(struct device *device, void *host, const void *memory, size_t bytes)
{
    (void)device;
    memcpy(host, memory, bytes);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .kv_format = FORMAT_F16,
    .chunk = 512,
    .is_host = true,
    .observes = true,
    .count = cpu_count,
    .isa_name = cpu_isa_name,
    .isa_probe = cpu_isa_probe,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .supports = cpu_supports,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .weight_load = cpu_weight_load,
    .weight_unload = cpu_weight_unload,
    .place_weights = cpu_place_weights,
    .scratch_bytes = cpu_scratch_bytes,
    .bind = cpu_bind,
    .unbind = cpu_unbind,
    .run = cpu_run,
    .fence = cpu_fence,
    .upload = cpu_upload,
    .download = cpu_download,
    .print_profile = cpu_profile_print,
    .measure_limits = cpu_measure_limits,
};
