#include "server/call.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

struct call *call_open(struct http_request *q)
{
    struct call *c = mem_alloc(1, sizeof *c);
    if (!c) return NULL;
    c->q = q;
    c->news.owner = c->work.owner = c;
    c->began = c->received = os_seconds();
    c->finish = "";
    snprintf(c->client, sizeof c->client, "%s", q->client);
    snprintf(c->method, sizeof c->method, "%s", q->method);
    c->family = routes_family(q->path);
    request_id_make(c->unique);
    request_id_choose(c->id, http_header(q, "x-request-id", 0), c->unique);
    return c;
}

void call_close(struct call *c, struct grammars *grammars)
{
    for (int32_t i = 0; i < c->n_answers; i++) generation_close(&c->answers[i]);
    mem_free(c->answers);
    reply_close(c->reply);
    grammars_give(grammars, c->grammar);
    prompts_deinit(&c->prompts);
    ask_close(&c->ask);
    buf_deinit(&c->body);
    mem_free(c);
}
