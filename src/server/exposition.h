/* The text form of Prometheus: families, their samples, labels. Pure. */
#ifndef SERVER_EXPOSITION_H
#define SERVER_EXPOSITION_H

#include <stdint.h>

#include "base/buf.h"

enum family_kind { FAMILY_COUNTER, FAMILY_GAUGE, FAMILY_HISTOGRAM };

/* HELP and TYPE. All samples of a family follow before the next family begins. */
void family_begin(struct buf *out, const char *name, enum family_kind kind, const char *help);

/* `labels`: text made by labels_add, or "". */
void sample_put(struct buf *out, const char *name, const char *labels, double value);

/* Appends name="value" to `labels`, with a comma where one is needed. The value is escaped, and
 * bytes that are not UTF-8 become U+FFFD. */
void labels_add(struct buf *labels, const char *name, const char *value);

enum { HISTOGRAM_BOUNDS_MAX = 24 };
struct histogram {
    const double *bounds; /* [n], rising; a last bucket, +Inf, takes the rest */
    int n;
    uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1]; /* of each bucket alone */
    double sum;
};
/* Numbers that are not finite count as 0, negative ones too. */
void histogram_add(struct histogram *h, double value);
/* The samples of a family: buckets, sum and count. */
void histogram_put(struct buf *out, const char *name, const char *labels,
                   const struct histogram *h);

#endif
