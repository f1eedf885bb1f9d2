/* What --otlp and the variables of OpenTelemetry say about traces. */
#ifndef CLI_TRACING_H
#define CLI_TRACING_H

#include "cli/options.h"
#include "server/traces.h"

/* collector.url is "" if none are wanted. `service` holds the name of the service, and lives as
 * long as *out. */
void tracing_read(struct traces_options *out, const struct options *o, const char *model,
                  struct buf *service);

#endif
