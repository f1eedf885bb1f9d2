#include "support/text_fixture.h"

#include "base/assert.h"
#include "support/gemma_file.h"

void text_fixture_init(struct text_fixture *f, int n_vocab)
{
    *f = (struct text_fixture){0};
    gemma_put_vocabulary(&f->writer, n_vocab);
    carat_assert(!f->writer.failed);
}

void text_fixture_parse(struct text_fixture *f)
{
    struct carat_error err;
    carat_assert(gguf_save_image(&f->writer, &f->image, &err) == CARAT_OK);
    carat_assert(gguf_open_memory(&f->g, f->image.data, f->image.length, "made up", &err) ==
                 CARAT_OK);
}

void text_fixture_open(struct text_fixture *f, int n_vocab)
{
    struct carat_error err;
    text_fixture_init(f, n_vocab);
    text_fixture_parse(f);
    carat_assert(vocab_open(&f->v, f->g, &err) == CARAT_OK);
}

void text_fixture_deinit(struct text_fixture *f)
{
    vocab_close(f->v);
    gguf_close(f->g);
    buf_deinit(&f->image);
    gguf_writer_deinit(&f->writer);
}

static struct text_fixture shared;

const struct vocab *shared_vocab(void)
{
    if (!shared.v) text_fixture_open(&shared, 1024);
    return shared.v;
}

int shared_vocab_open(void **state)
{
    (void)state;
    shared_vocab();
    return 0;
}

int shared_vocab_close(void **state)
{
    (void)state;
    text_fixture_deinit(&shared);
    shared.v = NULL;
    return 0;
}
