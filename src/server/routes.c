#include "server/routes.h"

#include <stdio.h>
#include <string.h>

#define ABSENT(method, path, what)                                                                 \
    {                                                                                              \
        method, path, ROUTE_ABSENT, 0, false, what                                                 \
    }

static const struct route routes[] = {
    {"POST", "/v1/chat/completions", ROUTE_ANSWER, API_CHAT, false, NULL},
    {"POST", "/chat/completions", ROUTE_ANSWER, API_CHAT, false, NULL},
    {"POST", "/v1/completions", ROUTE_ANSWER, API_COMPLETIONS, false, NULL},
    {"POST", "/completions", ROUTE_ANSWER, API_COMPLETIONS, false, NULL},
    {"POST", "/v1/responses", ROUTE_ANSWER, API_RESPONSES, false, NULL},
    {"POST", "/responses", ROUTE_ANSWER, API_RESPONSES, false, NULL},
    {"POST", "/v1/messages", ROUTE_ANSWER, API_MESSAGES, false, NULL},
    {"POST", "/api/chat", ROUTE_ANSWER, API_OLLAMA_CHAT, false, NULL},
    {"POST", "/api/generate", ROUTE_ANSWER, API_OLLAMA_GENERATE, false, NULL},
    {"POST", "/v1/chat/completions/render", ROUTE_TEXT, TEXT_RENDER_CHAT, false, NULL},
    {"POST", "/v1/completions/render", ROUTE_TEXT, TEXT_RENDER_COMPLETION, false, NULL},
    {"POST", "/v1/messages/count_tokens", ROUTE_TEXT, TEXT_COUNT_MESSAGES, false, NULL},
    {"POST", "/v1/responses/input_tokens", ROUTE_TEXT, TEXT_COUNT_RESPONSES, false, NULL},
    {"POST", "/tokenize", ROUTE_TEXT, TEXT_TOKENIZE, false, NULL},
    {"POST", "/detokenize", ROUTE_TEXT, TEXT_DETOKENIZE, false, NULL},
    {"POST", "/apply-template", ROUTE_TEXT, TEXT_TEMPLATE, false, NULL},
    {"POST", "/api/show", ROUTE_SHOW, 0, false, NULL},
    {"GET", "/health", ROUTE_READY, 0, true, NULL},
    {"GET", "/v1/health", ROUTE_READY, 0, true, NULL},
    {"GET", "/health/ready", ROUTE_READY, 0, true, NULL},
    {"GET", "/health/live", ROUTE_LIVE, 0, true, NULL},
    {"GET", "/metrics", ROUTE_METRICS, 0, false, NULL},
    {"GET", "/v1/models", ROUTE_MODELS, 0, false, NULL},
    {"GET", "/models", ROUTE_MODELS, 0, false, NULL},
    {"GET", "/v1/models/*", ROUTE_MODEL, 0, false, NULL},
    {"GET", "/props", ROUTE_PROPS, 0, false, NULL},
    {"GET", "/slots", ROUTE_SLOTS, 0, false, NULL},
    {"GET", "/api/tags", ROUTE_TAGS, 0, false, NULL},
    {"GET", "/api/version", ROUTE_VERSION, 0, false, NULL},
    {"GET", "/api/ps", ROUTE_PS, 0, false, NULL},
    {"GET", "/", ROUTE_ROOT, 0, true, NULL},
    {"GET", "/ui/*", ROUTE_FILE, 0, true, NULL},
    {"GET", "/openapi.yaml", ROUTE_FILE, 0, true, NULL},
    {"GET", "/favicon.ico", ROUTE_FILE, 0, true, NULL},
    {"POST", "/drain", ROUTE_DRAIN, 0, false, NULL},
    ABSENT("POST", "/v1/embeddings", "embeddings"),
    ABSENT("POST", "/embeddings", "embeddings"),
    ABSENT("POST", "/embedding", "embeddings"),
    ABSENT("POST", "/api/embed", "embeddings"),
    ABSENT("POST", "/api/embeddings", "embeddings"),
    ABSENT("POST", "/v1/rerank", "reranking"),
    ABSENT("POST", "/rerank", "reranking"),
    ABSENT("POST", "/v1/moderations", "moderation"),
    ABSENT("POST", "/v1/audio/*", "audio"),
    ABSENT("POST", "/v1/images/*", "images"),
    ABSENT("POST", "/v1/files", "files"),
    ABSENT("POST", "/v1/batches", "batches"),
    ABSENT("POST", "/v1/messages/batches", "batches"),
    ABSENT("POST", "/infill", "infill"),
    ABSENT("POST", "/slots/*", "saving and restoring slots"),
    ABSENT("POST", "/api/pull", "pulling models through the server"),
    ABSENT("POST", "/api/push", "pushing models"),
    ABSENT("POST", "/api/create", "creating models"),
    ABSENT("POST", "/api/copy", "copying models"),
    ABSENT("DELETE", "/api/delete", "deleting models"),
};

static bool is_path(const struct route *r, const char *path)
{
    size_t n = strlen(r->path);
    if (r->path[n - 1] == '*') return strncmp(r->path, path, n - 1) == 0 && path[n - 1];
    return strcmp(r->path, path) == 0;
}

static bool is_method(const struct route *r, const char *method)
{
    bool is_head = strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0;
    return is_head || strcmp(r->method, method) == 0;
}

const struct route *routes_find(const char *method, const char *path, int *status,
                                char allow[ROUTES_ALLOW_MAX])
{
    size_t n = 0;
    allow[0] = '\0';
    *status = 404;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *r = &routes[i];
        if (!is_path(r, path)) continue;
        /* What is not done has no method to name instead. */
        if (is_method(r, method) || r->kind == ROUTE_ABSENT) {
            *status = 200;
            return r;
        }
        *status = 405;
        bool is_get = strcmp(r->method, "GET") == 0;
        int more = snprintf(allow + n, ROUTES_ALLOW_MAX - n, "%s%s", n ? ", " : "",
                            is_get ? "GET, HEAD" : r->method);
        if (more > 0 && n + (size_t)more < ROUTES_ALLOW_MAX) n += (size_t)more;
    }
    return NULL;
}

bool route_is_computed(const struct route *r)
{
    return r->kind == ROUTE_ANSWER || r->kind == ROUTE_TEXT;
}

static bool is_below(const char *path, const char *folder)
{
    return strncmp(path, folder, strlen(folder)) == 0;
}

enum api_family routes_family(const char *path)
{
    if (is_below(path, "/v1/messages")) return FAMILY_ANTHROPIC;
    return is_below(path, "/api/") ? FAMILY_OLLAMA : FAMILY_OPENAI;
}
