/* Bodies of replies that tell about the server and its model, in the forms that clients of OpenAI,
 * llama-server and ollama look for. Nothing in them is secret, and no path of this machine. */
#ifndef SERVER_FACTS_H
#define SERVER_FACTS_H

#include "base/buf.h"
#include "carat.h"

struct facts {
    const carat_model *model;
    const char *alias, *build; /* the model's name here; "carat-0.1.0-1a2b3c4" */
    int64_t since;             /* seconds since 1970: when the server began */
    struct carat_sampling sampling;
    int32_t n_ctx, n_seq; /* positions of a sequence; sequences of all engines */
    int32_t n_busy;       /* sequences at work */
};

void facts_health(const char *status, struct buf *out);
void facts_models(const struct facts *f, struct buf *out);
void facts_model(const struct facts *f, struct buf *out);
void facts_props(const struct facts *f, struct buf *out);
void facts_slots(const struct facts *f, struct buf *out);
void facts_tags(const struct facts *f, bool is_running, struct buf *out); /* /api/tags, /api/ps */
void facts_show(const struct facts *f, struct buf *out);
void facts_version(struct buf *out);

#endif
