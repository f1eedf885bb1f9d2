#include "support/tiny_model.h"

#include "base/mem.h"

struct drawing {
    struct gguf_writer *writer;
    struct rng rng;
};

static void draw_tensor(void *user, const struct gemma_tensor *t)
{
    struct drawing *d = user;
    int64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    float *values = mem_alloc((size_t)n, sizeof *values);
    if (!values) {
        d->writer->failed = true;
        return;
    }
    gemma_draw_values(&d->rng, t, values, n);
    gguf_add_values(d->writer, t->name, t->format, t->dims, t->n_dims, values);
    mem_free(values);
}

void tiny_model_put_shape(struct gguf_writer *w, const struct gemma_shape *shape,
                          const struct gemma_layout *layout, uint64_t seed)
{
    struct drawing drawing = {.writer = w, .rng = {.state = seed}};
    gemma_put_keys(w, shape);
    gemma_put_vocabulary(w, shape->n_vocab);
    gemma_tensors(shape, layout, draw_tensor, &drawing);
}

static struct gemma_layout layout_of(const struct tiny_options *o)
{
    struct gemma_layout layout = gemma_layout_plain(o->format);
    layout.keep_shared_kv = o->keep_shared_kv;
    layout.separate_experts = o->separate_experts;
    layout.no_layer_scale = o->no_layer_scale;
    layout.no_expert_scale = o->no_expert_scale;
    layout.is_simple = o->is_simple;
    layout.agreement = o->agreement;
    return layout;
}

void tiny_model_put(struct gguf_writer *w, const struct tiny_options *o)
{
    struct gemma_shape shape = gemma_tiny_shape(o->size);
    struct gemma_layout layout = layout_of(o);
    tiny_model_put_shape(w, &shape, &layout, o->seed);
}

void tiny_drafter_put(struct gguf_writer *w, const struct tiny_options *o)
{
    struct gemma_shape target = gemma_tiny_shape(o->size), shape = gemma_drafter_shape(&target);
    struct gemma_layout layout = layout_of(o);
    tiny_model_put_shape(w, &shape, &layout, o->seed);
}

typedef void put_fn(struct gguf_writer *w, const struct tiny_options *options);

static int save(put_fn *put, const char *path, const struct tiny_options *options,
                struct carat_error *err)
{
    struct gguf_writer w = {0};
    put(&w, options);
    int status = gguf_save(&w, path, err);
    gguf_writer_deinit(&w);
    return status;
}

int tiny_model_save(const char *path, const struct tiny_options *options, struct carat_error *err)
{
    return save(tiny_model_put, path, options, err);
}

int tiny_drafter_save(const char *path, const struct tiny_options *options, struct carat_error *err)
{
    return save(tiny_drafter_put, path, options, err);
}
