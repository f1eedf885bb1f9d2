/* What a client asks for, whatever API it speaks: everything becomes a chat request in the form of
 * OpenAI's API, or prompts as they are. So there is one place that checks it (json/chat_request.h),
 * one template and one grammar, and the same conversation has the same ids in every API.
 *
 * Rules
 * 1. Reading is pure: no clock, no model, no thread. Any bytes may come.
 * 2. CARAT_EUSAGE names the member as the client wrote it, e.g. "messages[1].content[0].source",
 *    or "messages.1.content.0.source" in Anthropic's API.
 *    CARAT_EUNSUPPORTED: a part that carat does not have (images, audio, files).
 * 3. Unknown members are ignored, unknown values are refused. */
#ifndef API_ASK_H
#define API_ASK_H

#include "json/chat_request.h"

enum api {
    API_CHAT,           /* OpenAI: /v1/chat/completions */
    API_COMPLETIONS,    /* OpenAI: /v1/completions */
    API_RESPONSES,      /* OpenAI: /v1/responses */
    API_MESSAGES,       /* Anthropic: /v1/messages */
    API_OLLAMA_CHAT,    /* ollama: /api/chat */
    API_OLLAMA_GENERATE /* ollama: /api/generate */
};
enum { API_COUNT = API_OLLAMA_GENERATE + 1 };

/* Text, in which special tokens do not count unless has_special; or ids. An echo of ids needs their
 * text: whoever has the vocabulary fills it in before reply_open. */
struct ask_prompt {
    const char *text; /* not always with a NUL at its end */
    size_t length;
    bool has_special;
    const int32_t *ids; /* not NULL: these are the prompt */
    size_t n_ids;
};

struct ask_limits { /* more is CARAT_EUSAGE with both numbers */
    int32_t n_max;  /* answers of a request: n times prompts */
    size_t messages_max, tools_max, stops_max;
    const char *model; /* the only model that a request may name; NULL: it may name any */
};

/* A tool that has another name in the prompt than the client's. */
struct ask_tool {
    const char *shown;        /* in the prompt */
    const char *name, *space; /* as the client named it, and its namespace or "" */
    bool is_custom;           /* takes a text: the one argument "input" */
};

struct ask {
    enum api api;
    struct chat_request request; /* root, sampling, limits, stops, bias, log-probabilities */
    struct ask_prompt *prompts;  /* [n_prompts], instead of messages; of the request's arena */
    size_t n_prompts;            /* 0: a chat */
    const char *model;           /* as sent; "" when absent */
    const char *session;         /* names a conversation (prompt_cache_key, user, metadata.user_id),
                                    or "" */
    const char *cache_salt;      /* only requests with the same one share what was read; "" */
    int32_t n;                   /* answers to each prompt */
    int32_t priority;            /* 0; higher: served after others that wait, as in vLLM's API */
    bool is_stream;
    bool wants_usage;      /* in a stream: one more chunk with the usage */
    bool wants_progress;   /* in a stream: how much of the prompt is read (return_progress) */
    bool wants_timings;    /* in each chunk (timings_per_token) */
    bool wants_ids;        /* completions: token_ids with each chunk (return_token_ids) */
    bool wants_echo;       /* completions: the prompt before the answer */
    bool no_cache;         /* cache_prompt: false */
    bool says_reasoning;   /* thoughts are in "reasoning", not in "reasoning_content": set by
                                the server, no request says it */
    bool is_unload;        /* ollama: no messages and keep_alive 0: nothing is to be computed */
    bool is_load;          /* ollama: no messages: likewise, but the model is to stay */
    bool has_billing_line; /* Anthropic: a changing first line of the system prompt was dropped */
    struct ask_tool *renamed; /* [n_renamed], of the request's arena */
    size_t n_renamed;
    /* What members of the root are called in the client's body, for ask_use_names. */
    const struct carat_value *tool_paths; /* [n_tool_paths], texts: of each of "tools" */
    size_t n_tool_paths;
    const char *schema_path; /* of the schema in "response_format"; NULL: the same */
    int32_t n_ignored_tools; /* hosted tools, which a server cannot have: left out */
};

/* Reads the body of a request of that API. `defaults` is what the request does not say about
 * sampling. Owned: ask_close, after a failure too. A zeroed ask is a valid empty one. */
int ask_read(struct ask *ask, enum api api, const char *body, size_t length,
             const struct carat_sampling *defaults, const struct ask_limits *limits,
             struct carat_error *err);
void ask_close(struct ask *ask);

/* Whether a request may name this model; "" is none. */
int ask_check_model(const struct ask_limits *limits, const char *model, struct carat_error *err);

/* Errors of rendering the root, or of making a grammar of it, begin with the name of a member of
 * the root. Replaces this by the whole path of the member in the client's body, written as the
 * client's API writes paths. */
void ask_use_names(const struct ask *ask, struct carat_error *err);

#endif
