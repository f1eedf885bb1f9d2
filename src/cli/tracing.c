#include "cli/tracing.h"

#include <string.h>
#include <strings.h>

#include "carat.h"
#include "cli/files.h"
#include "server/pairs.h"

/* The variable of traces alone takes precedence over the common one. */
static const char *variable_of_traces(const char *own, const char *common)
{
    const char *value = environment(own);
    return value[0] ? value : environment(common);
}

/* Whether the variables count: a build that cannot send anything ignores them. */
static bool listens_to_variables(void)
{
#ifdef CARAT_HAVE_FETCH
    return strcasecmp(environment("OTEL_SDK_DISABLED"), "true") != 0 &&
           strcasecmp(environment("OTEL_TRACES_EXPORTER"), "none") != 0;
#else
    return false;
#endif
}

static void read_url(struct otlp_options *out, const struct options *o)
{
    static const char own[] = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    static const char common[] = "OTEL_EXPORTER_OTLP_ENDPOINT";
    out->name = "--otlp";
    out->url = opt_text(o, OPT_OTLP);
    if (out->url[0] || !listens_to_variables()) return;
    out->is_whole = environment(own)[0] != '\0';
    out->name = out->is_whole ? own : common;
    out->url = environment(out->name);
}

static void name_service(const char *attributes, struct buf *out)
{
    struct pair pair;
    const char *name = environment("OTEL_SERVICE_NAME");
    buf_add_text(out, name[0] ? name : "carat");
    while (!name[0] && pairs_next(&attributes, &pair) > 0) {
        if (strcmp(pair.name, "service.name") != 0) continue;
        buf_clear(out);
        buf_add_text(out, pair.value);
    }
}

void tracing_read(struct traces_options *out, const struct options *o, const char *model,
                  struct buf *service)
{
    const char *attributes = environment("OTEL_RESOURCE_ATTRIBUTES");
    read_url(&out->collector, o);
    name_service(attributes, service);
    out->collector.fields =
        variable_of_traces("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
    out->collector.ca_file = variable_of_traces("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                                                "OTEL_EXPORTER_OTLP_CERTIFICATE");
    if (!out->collector.ca_file[0]) out->collector.ca_file = environment("SSL_CERT_FILE");
    out->collector.is_insecure = opt_is_set(o, OPT_INSECURE);
    out->source = (struct span_source){.service = buf_text(service),
                                       .version = CARAT_VERSION,
                                       .model = model,
                                       .attributes = attributes};
}
