/* What backends that compute in the host's memory have in common. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H

#include "backend/backend.h"

/* Describes a device of that name, whose memory is what this process may take of the machine's. */
void host_describe(const char *name, struct device_facts *out);

/* What a product reads at x0, and from x1, where it has experts, their ids: in a step with n_rows
 * rows of the op's class. */
struct product_rows host_product_rows(const struct op *op, const float *x0, const float *x1,
                                      int32_t n_rows);

#endif
