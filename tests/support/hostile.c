#include "support/hostile.h"

#include <string.h>

#include "base/assert.h"

size_t hostile_count(void)
{
    return hostile_container_cases().n + hostile_model_cases().n;
}

const struct hostile_case *hostile_at(size_t i)
{
    struct hostile_list first = hostile_container_cases(), second = hostile_model_cases();
    carat_assert(i < first.n + second.n);
    return i < first.n ? &first.cases[i] : &second.cases[i - first.n];
}

void maker_image(struct hostile_maker *m)
{
    int status = gguf_save_image(&m->writer, &m->image, NULL);
    carat_assert(status == CARAT_OK);
}

void hostile_make(const struct hostile_case *test, const struct scratch *scratch, char path[512])
{
    struct hostile_maker m = {.test = test, .scratch = scratch};
    scratch_file(scratch, "model.gguf", m.path);
    tiny_model_put(&m.writer,
                   &(struct tiny_options){.size = test->size, .format = FORMAT_Q8_0, .seed = 5});
    test->make(&m);
    if (!m.is_saved) {
        if (!m.image.data) maker_image(&m);
        scratch_write(scratch, "model.gguf", m.image.data, m.image.length);
    }
    memcpy(path, m.path, sizeof m.path);
    buf_deinit(&m.image);
    gguf_writer_deinit(&m.writer);
}
