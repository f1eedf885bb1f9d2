#include "server/call.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "base/os.h"

static bool is_name(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(text);
    return n > 0 && n < sizeof((struct call *)0)->id && strspn(text, allowed) == n;
}

static void name_call(struct call *c)
{
    const char *given = http_header(c->q, "x-request-id", 0);
    uint64_t number[2] = {0};
    if (getrandom(number, sizeof number, 0) != sizeof number) number[0] = (uintptr_t)c;
    snprintf(c->unique, sizeof c->unique, "%016llx%08llx", (unsigned long long)number[0],
             (unsigned long long)(number[1] & 0xFFFFFFFF));
    snprintf(c->id, sizeof c->id, "%s", given && is_name(given) ? given : c->unique);
}

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
    name_call(c);
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
