#include "backend/host.h"

#include <stdio.h>

#include "base/allowance.h"

void host_describe(const char *name, struct device_facts *out)
{
    struct memory_allowance memory = allowance_memory("");
    *out =
        (struct device_facts){.memory_total = memory.total, .memory_available = memory.available};
    snprintf(out->name, sizeof out->name, "%s", name);
}

struct product_rows host_product_rows(const struct op *op, const float *x0, const float *x1,
                                      int32_t n_rows)
{
    struct product_rows rows = {op_product(op), x0, n_rows, NULL, 0};
    if (op->code == OP_MATMUL) return rows;
    rows.experts = (const int32_t *)(const void *)x1;
    rows.n_used = op->p.expert.n_used;
    if (op->code == OP_EXPERT_IN) return rows;
    rows.n_rows *= rows.n_used; /* EXPERT_OUT: a row for each expert of a token */
    rows.n_used = 1;
    return rows;
}
