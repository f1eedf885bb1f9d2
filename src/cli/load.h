/* `carat bench --load`: many users' requests to an engine, in one process and without a network, or
 * to a server (--url).
 * load_spec.h says what can be asked for, load_plan.h draws the requests, load_run.h sends them,
 * load_stats.h and load_report.h say what came of it. */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

#include "cli/options.h"

/* CARAT_EUSAGE, or what models and engines fail with; CARAT_EINTERNAL if requests have failed. */
int load_measure(const struct options *o, struct carat_error *err);

#endif
