/* Which entries of an importance matrix carat_quantize uses, and for which tensors. */
#ifndef ENGINE_IMPORTANCE_H
#define ENGINE_IMPORTANCE_H

#include "base/buf.h"
#include "carat_quantize.h"
#include "gguf/imatrix.h"

struct importance {
    const struct carat_quantize_options *o;
    struct imatrix *matrix; /* NULL: none was asked for */
    int64_t values_max;     /* of an entry that is used */
};

/* Whether `name` contains `pattern`, or begins with what follows its "^". */
bool name_fits(const char *name, const char *pattern);

/* Reads the matrix that the options name, and compares it with the model's tensors. */
int importance_open(struct importance *m, const struct carat_quantize_options *o,
                    const struct gguf *g, struct carat_error *err);
void importance_close(struct importance *m);

/* The entry for a tensor, or NULL. */
const struct imatrix_entry *importance_of(const struct importance *m, const char *name);

/* Appends the keys that name the matrix; returns how many. */
uint64_t importance_keys(const struct importance *m, struct buf *out);

#endif
