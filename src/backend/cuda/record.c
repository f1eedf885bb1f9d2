#include "backend/cuda/record.h"

#include <string.h>

#include "base/mem.h"

/* Arguments of any type begin at multiples of this many bytes. */
enum { ARGS_ALIGNMENT = 16 };

void records_add(struct records *r, struct record record, const void *args, size_t args_bytes)
{
    if (r->all) {
        record.args = memcpy(r->args + r->args_bytes, args, args_bytes);
        r->all[r->n] = record;
    }
    r->n++;
    r->args_bytes += (args_bytes + ARGS_ALIGNMENT - 1) / ARGS_ALIGNMENT * ARGS_ALIGNMENT;
}

void records_mark(struct records *r, struct record_mark mark)
{
    if (r->all) r->all[r->n - 1].mark = mark;
}

int records_init(struct records *r, const struct records *counted, struct carat_error *err)
{
    size_t n = (size_t)counted->n + 1;
    *r = (struct records){.all = mem_alloc(n, sizeof *r->all),
                          .args = mem_alloc(counted->args_bytes + 1, 1)};
    if (r->all && r->args) return CARAT_OK;
    records_deinit(r);
    return err_no_memory(err, "program", n * sizeof *r->all + counted->args_bytes);
}

void records_deinit(struct records *r)
{
    mem_free(r->all);
    mem_free(r->args);
    *r = (struct records){0};
}
