/* carat: Gemma 4 language models from GGUF files.
 *
 * The one header that a program needs; carat_inspect.h has what measures and looks inside. Calling
 * order, with the functions of each step:
 *
 *   open a model file          carat_model_open
 *   start an engine on it      carat_engine_open: takes all memory
 *   make a prompt of ids       carat_chat_tokenize_json, carat_chat_tokenize, carat_tokenize
 *   hold the answer to a form  carat_grammar_open_chat_json, _json_schema, _gbnf (optional)
 *   ask                        carat_submit; carat_answer_open, when text is wanted
 *   until the DONE event       carat_step; carat_next_event until NULL; carat_answer_push
 *   close, in reverse order    carat_answer_close, carat_engine_close, carat_grammar_close,
 *                              carat_model_close
 *
 * examples/generate.c does this on one page.
 *
 * Rules
 * 1. Functions that can fail return CARAT_OK or a negative status and fill `err` (which may be
 *    NULL). Nothing here prints, exits or reads the environment.
 * 2. A carat_model and a carat_grammar do not change: any thread may use them. A model must outlive
 *    what was opened on it, a grammar the requests that have it.
 *    Everything else belongs to one thread at a time, except that any thread may call
 *    carat_cancel.
 * 3. Memory handed to the caller is freed with carat_free. Everything else is borrowed.
 * 4. A zeroed struct asks for defaults. Token ids are int32_t in [0, vocabulary size). Positions
 *    count from 0. Texts are UTF-8.
 * 5. Structs of options begin with `size`, which is sizeof the struct, or 0 for the members up to
 *    the line "end of version 0.1". Later versions add members at the end, and use 0 for those
 *    that a shorter struct lacks. In a longer struct the members that this library does not know
 *    must be 0, else CARAT_EUNSUPPORTED. Structs that are handed out as `const` pointers grow
 *    too. All others stay the same as long as the library's soname does. */
#ifndef CARAT_H
#define CARAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; carat_version() gives that of the library. */
#define CARAT_VERSION_MAJOR 0
#define CARAT_VERSION_MINOR 1
#define CARAT_VERSION_PATCH 0
#define CARAT_VERSION "0.1.0"

#pragma GCC visibility push(default)

typedef struct carat_model carat_model;
typedef struct carat_drafter carat_drafter;
typedef struct carat_importance carat_importance;
typedef struct carat_engine carat_engine;
typedef struct carat_decoder carat_decoder;
typedef struct carat_answer carat_answer;
typedef struct carat_grammar carat_grammar;
typedef uint64_t carat_request_id;

const char *carat_version(void); /* "0.1.0" */
void carat_free(void *memory);   /* NULL is fine */

/* ---- Model files ------------------------------------------------------------------------ */

enum carat_size { CARAT_SIZE_SMALL, CARAT_SIZE_LARGE }; /* chat template: E2B, E4B / the rest */

/* How the next token is chosen. The order, unless `samplers` has another one: bias and suppressed
 * ids, penalties, DRY, top-n-sigma, top-k, locally typical sampling, temperature, top-p, min-p,
 * XTC, the draw. In llama.cpp's own order temperature comes last: "edskypmxt".
 * A number outside its range is CARAT_EUSAGE. A member that is 0 is off, or has its default. */
#define CARAT_SAMPLERS "edskytpmx"
struct carat_sampling {      /* zeroed: the likeliest token, without penalties */
    float temperature;       /* 0 .. 100; 0: greedy, unless dynatemp_range says more */
    int32_t top_k;           /* 0: all */
    float top_p;             /* 0 .. 1; 0 or 1: off */
    float min_p;             /* 0 .. 1; 0: off */
    float repeat_penalty;    /* 0.01 .. 100; 0 or 1: off */
    float presence_penalty;  /* -100 .. 100; 0: off */
    float frequency_penalty; /* -100 .. 100; 0: off */
    int32_t repeat_last_n;   /* tokens the penalties look at; 0: the last 64, -1: all of them */
    uint64_t seed;
    /* Locally typical sampling: the tokens whose information is nearest to the expected one, until
     * they hold this share. */
    float typical_p;   /* 0 .. 1; 0 or 1: off */
    float top_n_sigma; /* logits down to the best minus so many standard deviations: -1 .. 100;
                          0 or below: off. Costs a pass over the vocabulary for each token and, on a
                          GPU, a copy of the row */
    /* XTC: with this probability drops all tokens that hold the threshold or more, except for the
     * least likely one of them. */
    float xtc_probability; /* 0 .. 1; 0: off */
    float xtc_threshold;   /* 0 .. 1; 0: 0.1; above 0.5: off */
    /* Dynamic temperature: from temperature - range, where one token is certain, to temperature +
     * range, where all are equally likely; between them by the entropy to the power `exponent`. */
    float dynatemp_range;    /* 0 .. 100; 0: off */
    float dynatemp_exponent; /* 0 .. 100; 0: 1 */
    /* DRY: if the last n tokens have occurred together before, the logit of the token that followed
     * there is lowered by multiplier * base ^ (n - allowed length), from the allowed length on. */
    float dry_multiplier;       /* 0 .. 100; 0: off */
    float dry_base;             /* 1 .. 100; 0: 1.75 */
    int32_t dry_allowed_length; /* 1 .. CARAT_DRY_TOKENS_MAX; 0: 2 */
    int32_t dry_penalty_last_n; /* tokens it looks at; up to as many; 0 or -1: all of them */
    /* Texts that end a repetition: [n_dry_breakers], at most CARAT_DRY_BREAKERS_MAX, each of 1 to
     * CARAT_DRY_BREAKER_BYTES_MAX bytes. The struct borrows them, carat_submit copies them. NULL:
     * "\n", ":", "\"" and "*". To have none, point to anything, with a number of 0. */
    const char *const *dry_breakers;
    size_t n_dry_breakers;
    /* Mirostat, version 2: keeps the surprise of tokens near `tau` bits. It takes the place of all
     * that drops tokens: of top-n-sigma, top-k, typical, top-p, min-p and XTC; and the temperature
     * is not dynamic. Costs as much as top_n_sigma. */
    int32_t mirostat;   /* 0: off; 2 */
    float mirostat_tau; /* 0 .. 100; 0: 5 */
    float mirostat_eta; /* how fast it adapts: 0 .. 100; 0: 0.1 */
    /* The samplers that run, in their order, by llama.cpp's letters: penalties e, DRY d,
     * top-n-sigma s, top-k k, typical y, temperature t, top-p p, min-p m, XTC x. Each may stand
     * there once. What is not there is off; a temperature is 1 then. Bias and suppressed ids come
     * before all of them. With a temperature of 0, unless it is dynamic, and with Mirostat only e,
     * d and t matter, and t comes after the others. "": CARAT_SAMPLERS; "-": none runs. */
    char samplers[16];
};
enum {
    CARAT_DRY_BREAKERS_MAX = 32,
    CARAT_DRY_BREAKER_BYTES_MAX = 40,
    CARAT_DRY_TOKENS_MAX = 1 << 20
};

struct carat_model_info {
    const char *name;    /* general.name, what a terminal may obey removed; or "" */
    const char *variant; /* "E2B", "E4B", "12B", "26B-A4B", "31B", or "other" */
    enum carat_size size;
    int32_t n_layer, n_embd, n_vocab, n_ctx_train, window, n_expert, n_expert_used;
    int64_t n_params;
    uint64_t file_bytes;
    char quantisation[32]; /* "Q4_K - Medium": the type of most of the layers' weights */
    const char *note; /* what a user should know (extra tensors skipped, template unknown), or "" */
    struct carat_sampling sampling; /* recommended: general.sampling.*, else 1.0 / 64 / 0.95 */
};

/* Maps and checks a file (or the first part of a split one). CARAT_EFORMAT names the place.
 * CARAT_EMEMORY. */
int carat_model_open(carat_model **out, const char *path, struct carat_error *err);
void carat_model_close(carat_model *model);                                /* NULL is fine */
const struct carat_model_info *carat_model_info(const carat_model *model); /* borrowed from it */

/* A drafter: a small network that Google publishes with each model ("assistant"), which guesses
 * what the model will say from what the model has just computed. An engine with one (drafter,
 * n_draft) gives the same answers sooner. */
struct carat_drafter_info {
    int64_t n_params;
    uint64_t file_bytes;
    char quantisation[32]; /* as of a model */
    const char *note;      /* likewise */
};

/* Maps and checks a drafter's file. CARAT_EFORMAT: the file is not one of this model, or is
 * damaged; CARAT_EMEMORY. The model must outlive the drafter, and the drafter the engines that use
 * it. */
int carat_drafter_open(carat_drafter **out, const char *path, const carat_model *model,
                       struct carat_error *err);
void carat_drafter_close(carat_drafter *drafter); /* NULL is fine */
const struct carat_drafter_info *carat_drafter_info(const carat_drafter *drafter); /* borrowed */

/* Facts about any well-formed GGUF, for a list. With is_tried also whether carat can run it. */
struct carat_file_facts {
    char name[256];        /* general.name, what a terminal may obey removed; or "" */
    char architecture[64]; /* general.architecture, likewise */
    char quantisation[32]; /* "Q4_K - Medium" */
    char mix[128];         /* "Q4_K 61.3 %, Q6_K 37.9 %": types of most bytes */
    uint64_t file_bytes;   /* of all parts */
    int64_t n_params;
    int32_t n_ctx_train; /* 0: the file does not say */
    int32_t n_parts;
    char problem[512]; /* with is_tried: why carat cannot run it, or "" */
};
int carat_file_facts(const char *path, bool is_tried, struct carat_file_facts *out,
                     struct carat_error *err);

/* A listing of the file as JSON: {"path":..,"metadata":[{key,type,value}],"tensors":[..]}. Works on
 * any well-formed GGUF, even one that carat cannot run ("problem" then says why). *out is
 * freed with carat_free. Long arrays are cut to their first elements and their "count". */
int carat_show_json(const char *path, char **out, struct carat_error *err);

/* ---- Text ------------------------------------------------------------------------------- */

/* Which special-token strings in a text become special ids. User text is encoded with NONE;
 * USER_DEFINED is what llama.cpp does with parsing off (<|channel>, <|tool_call>, ...). */
enum carat_special { CARAT_SPECIAL_NONE, CARAT_SPECIAL_USER_DEFINED, CARAT_SPECIAL_ALL };

/* Encodes `length` bytes of any content. *ids is freed with carat_free. */
int carat_tokenize(const carat_model *model, const char *text, size_t length,
                   enum carat_special special, bool add_bos, int32_t **ids, size_t *count,
                   struct carat_error *err);

/* The text of one id as it is in the vocabulary (U+2581 not replaced). Borrowed. */
const char *carat_token_piece(const carat_model *model, int32_t id, size_t *length);
bool carat_token_is_stop(const carat_model *model, int32_t id);    /* ends an answer: <turn|> ... */
bool carat_token_is_control(const carat_model *model, int32_t id); /* any special token */

/* Ids back to text, which is freed with carat_free; a NUL follows its `length` bytes. With
 * `show_special` a special token is its name, without it nothing. CARAT_EUSAGE names an id that is
 * not in the vocabulary. */
int carat_detokenize(const carat_model *model, const int32_t *ids, size_t count, bool show_special,
                     char **text, size_t *length, struct carat_error *err);

/* The same, one id at a time: incomplete UTF-8 is held back until it is complete. The text is
 * borrowed until the next call on this decoder. Text that there is no memory for is left out;
 * carat_decoder_failed then says so. */
int carat_decoder_open(carat_decoder **out, const carat_model *model, bool show_special,
                       struct carat_error *err);
const char *carat_decoder_push(carat_decoder *decoder, int32_t id, size_t *length);
const char *carat_decoder_finish(carat_decoder *decoder, size_t *length); /* what was held back */
bool carat_decoder_failed(const carat_decoder *decoder); /* whether text was ever left out */
void carat_decoder_close(carat_decoder *decoder);        /* NULL is fine */

/* ---- Chat ------------------------------------------------------------------------------- */

/* clang-format off */
/* A JSON value. Strings and members are borrowed from whoever built the tree. */
enum carat_value_kind {
    CARAT_NULL, CARAT_BOOL, CARAT_INT, CARAT_REAL, CARAT_STRING, CARAT_ARRAY, CARAT_OBJECT
};
struct carat_value {
    enum carat_value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct { const char *data; size_t length; } string;
        struct { const struct carat_value *items; size_t count; } array;
        struct { const struct carat_member *members; size_t count; } object;
    } as;
};
struct carat_member {
    struct { const char *data; size_t length; } key;
    struct carat_value value;
};
/* clang-format on */

/* A prompt is a list of spans: template text, in which special tokens count, and message text, in
 * which they do not. `request` is a chat request as OpenAI's API has it: an object with
 * "messages" and optionally "tools", "enable_thinking", "add_generation_prompt" (default true),
 * "preserve_thinking", "continue_final_message" (the last message, a text of the assistant, is how
 * the answer begins); other members are ignored. CARAT_EUSAGE names the offending field.
 * *out and *ids are freed with carat_free. */
int carat_chat_text(enum carat_size size, const struct carat_value *request, char **out,
                    size_t *length, struct carat_error *err);
int carat_chat_tokenize(const carat_model *model, const struct carat_value *request, int32_t **ids,
                        size_t *count, struct carat_error *err);

/* The same from `length` bytes of JSON. "arguments" of tool calls may be objects, or strings of
 * JSON as in OpenAI's API. CARAT_EUSAGE names line and column of what is not JSON.
 * CARAT_EUNSUPPORTED: carat was built without jansson. */
int carat_chat_tokenize_json(const carat_model *model, const char *json, size_t length,
                             int32_t **ids, size_t *count, struct carat_error *err);

/* A quick test that needs no tokens: can a prompt of this many bytes fit into n_ctx positions at
 * all? If not, CARAT_ECONTEXT with the numbers. *bytes_max (may be NULL) is the most that is worth
 * reading. carat_chat_tokenize makes this test for the longest context of the model. */
int carat_check_prompt_bytes(const carat_model *model, size_t bytes, int32_t n_ctx,
                             size_t *bytes_max, struct carat_error *err);

/* ---- Answers ---------------------------------------------------------------------------- */

/* Turns model output, id by id, into text, thoughts and tool calls, up to a stop string. The answer
 * starts in the state that the prompt's last ids imply (inside a thought, after a tool call, ...).
 * The parts are the same however ids are grouped. Text is held back while it may be the beginning
 * of a stop string. No part of a stop string is handed out. */
enum carat_part_kind {
    CARAT_PART_TEXT,      /* text: answer for the user */
    CARAT_PART_THINKING,  /* text: reasoning */
    CARAT_PART_TOOL_CALL, /* name; text: the arguments as a JSON object. A whole call at once */
    /* Instead of it, with streams_calls: one BEGIN, ARGUMENTS, one END. */
    CARAT_PART_CALL_BEGIN,     /* name */
    CARAT_PART_CALL_ARGUMENTS, /* text: a piece of that JSON */
    CARAT_PART_CALL_END        /* is_complete */
};
struct carat_part {
    enum carat_part_kind kind;
    const char *text; /* `length` bytes, without a NUL at their end */
    size_t length;
    const char *name; /* TOOL_CALL, CALL_BEGIN; else "" */
    bool is_complete; /* TOOL_CALL, CALL_END: false when the output was cut or had to be repaired */
};

enum { CARAT_STOPS_MAX = 1024, CARAT_STOP_BYTES_MAX = 256 };
struct carat_answer_options { /* copied by carat_answer_open; NULL: all 0 */
    size_t size;
    /* Strings of 1 to CARAT_STOP_BYTES_MAX bytes, at most CARAT_STOPS_MAX. Only text is compared
     * with them, not thoughts or tool calls. */
    const char *const *stops;
    size_t n_stops;
    bool is_raw;       /* parts are TEXT only: all that the model says, thoughts and calls too */
    bool show_special; /* is_raw: special tokens too */
    /* Tool calls come while they are generated. All pieces together are the text that TOOL_CALL
     * would have. Strings come by whole characters, and an escape sequence is never split; other
     * values come when they end. A malformed call comes up to its first error, and the rest of it
     * at its end. */
    bool streams_calls;
    /* end of version 0.1 */
};
int carat_answer_open(carat_answer **out, const carat_model *model, const int32_t *prompt,
                      size_t n_prompt, const struct carat_answer_options *options,
                      struct carat_error *err);

/* Takes ids of TOKEN events and hands out parts, which are borrowed until the next call for this
 * answer. After a stop string there are no more parts. Call _finish when no ids follow: it hands
 * out what was held back. CARAT_EMEMORY, then and from then on: text was lost, there are no
 * parts. */
int carat_answer_push(carat_answer *answer, const int32_t *ids, size_t count,
                      const struct carat_part **parts, size_t *n_parts, struct carat_error *err);
int carat_answer_finish(carat_answer *answer, const struct carat_part **parts, size_t *n_parts,
                        struct carat_error *err);

/* The stop string that has ended the answer, or NULL. Borrowed from the answer. The request goes on
 * until carat_cancel ends it. */
const char *carat_answer_stop(const carat_answer *answer);
bool carat_answer_is_thinking(const carat_answer *answer); /* a thought has not ended yet */
void carat_answer_close(carat_answer *answer);             /* NULL is fine */

/* ---- Grammars --------------------------------------------------------------------------- */

/* What an answer may be. A grammar does not change: any number of requests on any thread may use
 * it, as long as it and its model live. While it is in force only tokens are sampled that can still
 * lead to a complete text, with the probabilities that the model gives them; stop tokens are
 * possible exactly when the text is complete. Special tokens are possible only where the grammar
 * names them. A thought (<|channel> ... <channel|>) may come before the text, and is free but for
 * stop tokens.
 *
 * The first grammar of a model builds an index of its vocabulary (about 0.1 s). A grammar takes up
 * to 8 MB besides its automaton. Rules inside each other are limited to 256 in an answer.
 *
 * CARAT_EUSAGE: wrong syntax, by line and column, or a rule that matches no text.
 * CARAT_EUNSUPPORTED: something that cannot be kept, by its path, or a bound, by its name. */

/* GBNF as llama.cpp has it: rules, beginning with `root`; "text", [a-z], [^a-z], ., ( ), |, *, +,
 * ?, {m,n}, # comments, and tokens <[id]>, <|name|>, !<[id]>. Left recursion is fine. */
int carat_grammar_open_gbnf(carat_grammar **out, const carat_model *model, const char *text,
                            size_t length, struct carat_error *err);

/* JSON text of a value that fits the schema, with at most one blank between its tokens. Members
 * come in the order of "properties"; those that are not required may be left out. docs/grammars.md
 * lists the keywords. Others are refused, except annotations. */
int carat_grammar_open_json_schema(carat_grammar **out, const carat_model *model, const char *json,
                                   size_t length, struct carat_error *err);
/* The grammar of the answers that a chat request in the form of OpenAI's API permits. *out is NULL
 * if the request permits any answer.
 *
 *   response_format       "json_object" or "json_schema"; or llama.cpp's members "json_schema" (a
 *                         schema) and "grammar" (GBNF), of which there may be one
 *   tools                 calls in the model's syntax, to one of the tools, with arguments that fit
 *                         its "parameters". Text before and between calls stays free
 *   tool_choice           "none" bans calls, "required" allows nothing else, {"type": "function",
 *                         "function": {"name": ..}} one call of that tool; "auto" is the default
 *   parallel_tool_calls   false: at most one call
 *
 * With both a form and tools an answer is either text of that form or calls. A thought may come
 * first if "enable_thinking" is true. A tool whose schema cannot be kept takes any arguments,
 * unless its "strict" is true: then it is refused. */
int carat_grammar_open_chat(carat_grammar **out, const carat_model *model,
                            const struct carat_value *request, struct carat_error *err);
int carat_grammar_open_chat_json(carat_grammar **out, const carat_model *model, const char *json,
                                 size_t length, struct carat_error *err);
void carat_grammar_close(carat_grammar *grammar); /* NULL is fine */

/* ---- Engine ----------------------------------------------------------------------------- */

/* AUTO: F32 where computing is exact, else F16, or Q8_0 if the requested context fits only so. Q8_0
 * is for global layers. Local layers stay F16: they are small and would lose most accuracy. */
enum carat_kv_type { CARAT_KV_AUTO, CARAT_KV_F16, CARAT_KV_F32, CARAT_KV_Q8_0, CARAT_KV_BF16 };

/* FAST: activations in 8 bits where the weights are quantised. The reference is always fp32. */
enum carat_precision { CARAT_PRECISION_FAST, CARAT_PRECISION_FP32 };

/* How a GPU computes products; AUTO: what is fastest on its chip. */
enum carat_matmul { CARAT_MATMUL_AUTO, CARAT_MATMUL_INT8, CARAT_MATMUL_FP16 };
/* Where a GPU reads the table of per-layer embeddings; AUTO: the first place with room for it. */
enum carat_ple { CARAT_PLE_AUTO, CARAT_PLE_GPU, CARAT_PLE_PINNED, CARAT_PLE_HOST };

/* Whether a GPU reads the keys and values of a beginning that several sequences share once for all
 * of them: the same bits either way. AUTO: for 16 sequences and 8192 positions or more. */
enum carat_cascade { CARAT_CASCADE_AUTO, CARAT_CASCADE_ON, CARAT_CASCADE_OFF };

struct carat_memory;

/* What the prefix cache has got or lost: a block of tokens, with all those before it. Names are
 * hashes under a key that the engine has chosen at random; they tell nothing of the tokens. */
struct carat_cache_event {
    bool is_removed;
    uint64_t block;     /* its name, never 0: the same for the same beginning and cache_salt */
    uint64_t parent;    /* of a new one: the block before it; 0: it is the first */
    const int32_t *ids; /* of a new one: its tokens; borrowed until the function returns */
    size_t n_ids;
};
/* Called in the thread that steps the engine. Must be quick, and call nothing of this engine. */
typedef void (*carat_on_cache_fn)(void *user, const struct carat_cache_event *event);

enum { CARAT_DRAFT_MAX = 7 };

struct carat_engine_options { /* every 0 or NULL means the default; NULL options: all of them */
    size_t size;
    const char *backend; /* "cuda", "cpu" or "ref"; default: the first that is there */
    int32_t n_ctx;       /* positions a sequence can hold; default: the most that fits */
    int32_t n_seq;       /* sequences decoded side by side; default 1 */
    int32_t chunk;       /* rows of a prefill step; default 512, 2048 on GPUs */
    enum carat_kv_type kv_type;
    int32_t n_threads; /* of the CPU backend; default: cores, or what a quota allows */
    bool pin_threads;  /* each thread stays on its core */
    enum carat_precision precision;
    int32_t device;            /* which of the backend's devices; default the first */
    enum carat_matmul matmul;  /* GPU: products of many rows */
    enum carat_ple ple_place;  /* GPU: the table of per-layer embeddings */
    int64_t ple_cache;         /* GPU: bytes for rows of a table in the file; 0: up to 256 MB, < 0:
                                 what steps need */
    int32_t gpu_layers;        /* on the device, the rest on the CPU; 0: all that fit; < 0: none */
    int32_t cpu_expert_layers; /* the first layers, whose experts (26B-A4B) stay on the CPU */
    int64_t mirror_budget;     /* GPU: the most bytes for fp16 copies of weights, which always leave
                                 a tenth of the GPU free; 0: no other limit, < 0: no copies */
    int64_t gpu_memory;        /* GPU: the most bytes that the engine may take there, the driver's
                                 share included; 0: what is free */
    int32_t gpu_memory_percent; /* the same in percent of its memory; the lower limit counts */
    /* GPU: parts to switch off for comparison. Answers differ by rounding at most. */
    bool no_graphs;      /* steps are launched, not replayed: the same bits */
    bool no_cublas;      /* products of prompts by our own kernels */
    bool no_fusion;      /* every operation is a launch of its own */
    bool profile;        /* keep times for carat_profile_text */
    bool measure_limits; /* for carat_measure_roofline: before any memory is taken */
    /* Called by carat_engine_open, with `progress_user`; may be NULL. `planned` gets what will be
     * taken before any of it is taken, and again if host memory cannot be page-locked as planned.
     * `progress` is called while weights are copied to a device. */
    void (*planned)(void *user, const struct carat_memory *memory);
    void (*progress)(void *user, size_t done_bytes, size_t total_bytes);
    void *progress_user;
    int64_t cache_bytes; /* for keys and values of all sequences together, on the first device; less
                            than one sequence needs: CARAT_EMEMORY with the numbers. 0: for all
                            sequences at full length where that fits, for one at least, and for
                            some anchors */
    /* What was read can be used again from an anchor on: the keys and values of one window of
     * positions before it, in all layers with a window. Beyond what running sequences need, the
     * cache has room for one anchor for each cache_split positions. 0: 4096; from 64 on */
    int32_t cache_split;
    bool no_prefix_cache; /* no room for anchors */
    int32_t n_queue;   /* requests that may wait besides the n_seq that run; default 4 n_seq + 64 */
    double max_itl_ms; /* the longest step while a sequence decodes, or twice the time of a decode
                           step if that is longer: prompts get as many rows as fit; default 50 */
    bool deterministic; /* n_seq at most 64: on a GPU too, answers do not depend on other requests,
                           on what is cached, or on times. On Hopper prompts and answers take turns,
                           and answers are not kept in the prefix cache; else steps have at most 64
                           rows */
    enum carat_cascade cascade; /* GPU: attention of tokens that share a beginning */
    const char *isa; /* of the CPU backend: the instruction set that it computes with, a name of
                        carat_isa_name; CARAT_EUSAGE names those that this machine runs. Default, or
                        "auto": the best one */
    carat_on_cache_fn on_cache; /* NULL: none */
    void *on_cache_user;
    /* GPU: products in steps of up to 64 rows. FP16 is for Hopper, other chips take INT8. AUTO:
     * INT8 up to 8 rows, or with `matmul` INT8, and FP16 for more; if deterministic, FP16 for more
     * than 8 sequences */
    enum carat_matmul decode_matmul;
    /* end of version 0.1 */
    bool wants_cublas; /* GPU: cuBLAS also where our own kernels would be taken (Hopper) */
    /* Tokens that a sequence guesses in a step at most, 0 to CARAT_DRAFT_MAX: what came after the
     * same few tokens before. A step checks all of them, so that several tokens may come of it.
     * Answers are the same. Guesses are made as far as they pay, in steps that read no prompt and
     * have up to 8 rows (Hopper, with decode_matmul AUTO and more than 4 sequences: E2B and E4B
     * up to 4). */
    int32_t n_draft;
    /* Guesses too, where the context suggests nothing better, in steps of up to 64 rows. Opened for
     * this model. NULL: none. On Hopper, with decode_matmul AUTO and more than 4 sequences, dense
     * models then take INT8 up to 4 rows */
    const carat_drafter *drafter;
    /* Adds up what products read in every step: carat_quantize.h. Opened for this model, outlives
     * the engine, used by one engine at a time. NULL: no. CARAT_EUSAGE: a backend other than "cpu"
     * and "ref". */
    carat_importance *importance;
};

/* Bytes of each kind, as allocated: what is printed is what is taken. */
struct carat_memory {
    uint64_t weights_mapped; /* of the file */
    uint64_t weights;        /* in the form that the device computes with, a drafter's too */
    uint64_t mirrors;        /* of these: fp16 copies, which only make steps faster */
    uint64_t ple_cache;      /* of these: rows of the table of per-layer embeddings in the file */
    uint64_t kv_local, kv_global, buffers;
    uint64_t step, pinned; /* on the host: a step's rows and tables; page-locked, for a GPU */
    uint64_t total;
    uint64_t driver;    /* of a GPU, not in `total`: left to its driver; an estimate */
    uint64_t available; /* what may be taken on the device: free memory, within gpu_memory */
    enum carat_kv_type kv_type; /* the effective one; never AUTO */
    bool kv_is_narrowed;        /* AUTO became Q8_0: with F16 the context does not fit */
    int32_t n_ctx;              /* the effective one */
    int32_t gpu_layers;         /* on the device */
    uint64_t second_total, second_available; /* of the CPU, when it computes the rest; else 0 */
    /* Keys and values lie in pages of 64 positions: those of all layers with a window in one pool,
     * those of the other layers in a second one. Pages of each pool, one of them for zeros; bytes
     * of a page, on all devices together. kv_local and kv_global are the pools of the device, and
     * tables that say where pages are. */
    int32_t pages_local, pages_global;
    uint64_t page_bytes_local, page_bytes_global;
    int64_t cache_positions; /* that all sequences have room for together */
    int32_t n_anchors;       /* that have room beyond what running sequences need */
};
/* What an engine with these options would take. Opens devices and closes them again; takes none of
 * that memory. Fails as carat_engine_open does. */
int carat_memory_estimate(const carat_model *model, const struct carat_engine_options *options,
                          struct carat_memory *out, struct carat_error *err);

/* Opens the devices, decides what fits, and takes all memory that steps will need. `options` and
 * its texts are borrowed until this returns; functions and their users as long as the engine lives.
 * CARAT_EUSAGE names an option out of its range; CARAT_EDEVICE says why a backend cannot be used;
 * CARAT_EMEMORY has the bytes that are needed and those that there are. */
int carat_engine_open(carat_engine **out, const carat_model *model,
                      const struct carat_engine_options *options, struct carat_error *err);
/* Forgets all requests, without events. NULL is fine. */
void carat_engine_close(carat_engine *engine);
const struct carat_memory *carat_engine_memory(const carat_engine *engine); /* borrowed from it */

/* What an engine computes with, and what it has decided by itself. */
enum carat_reason {
    CARAT_REASON_DEFAULT, /* neither an option nor memory changed it */
    CARAT_REASON_ASKED,   /* an option said so */
    CARAT_REASON_MEMORY   /* what was preferred does not fit */
};
struct carat_setup {
    const char *backend;                      /* "cuda" */
    const char *device;                       /* "NVIDIA H200" */
    const char *second_device;                /* the CPU, when it computes the rest; else "" */
    int32_t n_layer, gpu_layers;              /* all; those on `device` */
    enum carat_reason layers_reason;          /* of gpu_layers */
    uint64_t layers_needed, layers_available; /* MEMORY: bytes for all layers; free bytes */
    int32_t cpu_expert_layers; /* the first layers, whose experts are on the second device too */
    enum carat_ple ple_place;  /* of the table that `device` reads; AUTO: it reads none */
    enum carat_reason ple_reason;
    enum carat_kv_type kv_type; /* never AUTO */
    enum carat_reason kv_reason;
    enum carat_matmul decode_matmul; /* of `device`; AUTO: no GPU, fp32, or by the rows */
};
/* Borrowed; lives as long as the engine. */
const struct carat_setup *carat_engine_setup(const carat_engine *engine);

struct carat_logit_bias {
    int32_t id;
    float bias; /* at most CARAT_BIAS_LIMIT; -INFINITY and all below -CARAT_BIAS_LIMIT ban */
};

/* Called by carat_step before a token is sampled, with the request's ids so far (prompt and answer)
 * and its logits: n_vocab floats, which the function may change. -INFINITY bans an id; NaN or
 * +INFINITY ends the request with ERROR. Everything of carat_sampling is applied afterwards.
 * The function may call carat_cancel, and nothing else of this engine. */
typedef void (*carat_on_logits_fn)(void *user, const int32_t *ids, size_t n_ids, float *logits,
                                   int32_t n_vocab);

enum { CARAT_TOP_LOGPROBS_MAX = 20, CARAT_BIAS_MAX = 1024, CARAT_ANCHORS_MAX = 16 };
enum { CARAT_BIAS_LIMIT = 10000 }; /* far above any logit, far below overflow */
struct carat_request {             /* copied by carat_submit */
    size_t size;
    const int32_t *prompt;
    size_t n_prompt;    /* 1 .. n_ctx - 1, else CARAT_ECONTEXT with the numbers */
    int32_t max_tokens; /* <= 0: to the end of the context */
    struct carat_sampling sampling;
    const struct carat_logit_bias *bias;
    size_t n_bias;                /* at most CARAT_BIAS_MAX */
    bool ignore_stop;             /* measuring: go on after a stop token */
    bool want_logprob;            /* fill in `logprob` of the events */
    int32_t n_top_logprobs;       /* fill in `top` too: 0 .. CARAT_TOP_LOGPROBS_MAX */
    carat_on_logits_fn on_logits; /* NULL: none */
    void *on_logits_user;
    int32_t priority;        /* higher first, strictly */
    uint64_t fairness_key;   /* of equal priority: whose keys have had fewer rows comes first */
    double deadline_seconds; /* from carat_submit on; then DONE by DEADLINE. <= 0: none */
    /* What a request has read can be used again by a later one that begins with the same tokens:
     * at most the last 64 tokens before the end of the common part are computed again. */
    uint64_t cache_salt;    /* only requests with the same salt share what was read */
    bool no_cache;          /* neither uses what others have read nor leaves anything for them */
    const int32_t *anchors; /* [n_anchors] positions, 0 .. n_prompt, where later prompts are likely
                               to differ; ends of turns and of the prompt are known without */
    size_t n_anchors;       /* at most CARAT_ANCHORS_MAX */
    /* Of this model; NULL: none. Borrowed until the request is DONE. A request that cannot go on in
     * its grammar ends by ERROR. */
    const carat_grammar *grammar;
    void *user;           /* comes back in each event */
    int32_t max_thinking; /* after this many tokens of thoughts, the next one is <channel|>, which
                             closes the thought. <= 0: no limit */
    /* end of version 0.1 */
};

/* The log-probability of an id under the model alone: ln of the softmax of the softcapped logits
 * over the whole vocabulary, before on_logits, bias, suppressed ids, penalties and temperature.
 * Log-probabilities and on_logits cost a pass over the vocabulary for each token and, on a GPU, a
 * copy of the row. */
struct carat_logprob {
    int32_t id;
    float logprob;
};

enum carat_finish {
    CARAT_FINISH_STOP,
    CARAT_FINISH_LENGTH,
    CARAT_FINISH_CANCELLED,
    CARAT_FINISH_ERROR,
    CARAT_FINISH_DEADLINE
};
enum { CARAT_FINISH_COUNT = CARAT_FINISH_DEADLINE + 1 };
enum carat_event_kind { CARAT_EVENT_PROGRESS, CARAT_EVENT_TOKEN, CARAT_EVENT_DONE };
struct carat_event {
    carat_request_id request;
    enum carat_event_kind kind;
    int32_t done, total;                    /* PROGRESS: prompt positions; the first may be what
                                               came from the cache */
    int32_t id;                             /* TOKEN; stop tokens are not reported as TOKEN */
    float logprob;                          /* TOKEN, when wanted */
    enum carat_finish finish;               /* DONE */
    int32_t stop_id;                        /* DONE by STOP: which; else -1 */
    const char *message;                    /* DONE by ERROR; lives as long as the engine */
    int32_t n_prompt, n_generated;          /* DONE */
    double prefill_seconds, decode_seconds; /* DONE */
    /* TOKEN, when wanted: the likeliest ids, the best first; equal ones by rising id. Ids that are
     * never sampled (marks of images, the file's suppress_tokens) may be among them. */
    const struct carat_logprob *top;
    int32_t n_top;
    double queue_seconds; /* DONE: from carat_submit to the first step with it */
    int32_t n_cached;     /* DONE: prompt tokens that were not computed, because others had been */
    int32_t n_preempted;  /* DONE: how often it was stopped to make room, and went on later */
    void *user;           /* the request's */
    int32_t n_thinking;   /* DONE: tokens of thoughts, without their marks; of n_generated */
    int32_t n_drafted, n_accepted; /* DONE: tokens that were guessed; those that were right */
};

/* The request waits until a sequence and memory are free for it. CARAT_EUSAGE names a member out of
 * its range, CARAT_ECONTEXT has the numbers of a prompt that is too long. CARAT_EBUSY when n_seq +
 * n_queue requests are there already, CARAT_EDEVICE when the device is lost. CARAT_EMEMORY. */
int carat_submit(carat_engine *engine, const struct carat_request *request, carat_request_id *out,
                 struct carat_error *err);

/* May be called from any thread, even while another one is in carat_step. The next step ends the
 * request: DONE with CANCELLED. CARAT_EUSAGE: there is no such request (any more). */
int carat_cancel(carat_engine *engine, carat_request_id request);

/* The request gets no more rows until it is resumed (is_paused false): for a reader who does not
 * keep up with its events. It keeps what it holds as long as no other one needs that; then it is
 * stopped, as when memory gets short, and goes on after it was resumed. It can be cancelled, and
 * its deadline counts on: both end it in the next step. Pausing changes no answer. Not inside
 * on_logits. CARAT_EUSAGE: there is no such request (any more). */
int carat_pause(carat_engine *engine, carat_request_id request, bool is_paused);

/* One forward pass: for all sequences that decode, and for parts of prompts. Starts requests that
 * wait, if there is room. If memory gets short, a paused request is stopped, else the youngest
 * of the lowest priority; it goes on later where it was. Returns 1 while work is left, 0 when idle,
 * or a negative status. Idle: all requests that are left are paused. Then take the events until
 * NULL. CARAT_EDEVICE: the device is lost; every request has ended by ERROR, all later calls fail
 * with the same message, and the engine can only be closed. A GPU that was lost works again only in
 * a new process. */
int carat_step(carat_engine *engine, struct carat_error *err);
/* Borrowed until the next carat_step. NULL: no more. */
const struct carat_event *carat_next_event(carat_engine *engine);

/* Pages of 64 positions, in one pool. */
struct carat_page_counts {
    int64_t all, free, referenced, cached; /* all = free + referenced + cached */
};

struct carat_stats {
    /* Requests now. Waiting ones are queued until another one has read what both begin with. */
    int32_t queued, waiting, prefilling, decoding;
    struct carat_page_counts pages_local, pages_global; /* of layers with a window; of the others */
    int64_t anchors; /* positions from which a request can go on without reading what is before */
    /* Since the engine was opened. */
    uint64_t submitted, finished[CARAT_FINISH_COUNT];
    uint64_t lookups, hits;                /* of requests that started: how many found something */
    uint64_t prompt_tokens, cached_tokens; /* of these requests: all; those not computed again */
    uint64_t evicted_pages, evicted_anchors, preemptions;
    uint64_t steps, rows, prompt_rows; /* rows: of both kinds */
    uint64_t drafted, accepted;        /* tokens that were guessed; those that were right */
};

/* Borrowed; true until the next call of the engine. */
const struct carat_stats *carat_engine_stats(carat_engine *engine);

/* ---- Saved prefixes --------------------------------------------------------------------- */

/* A file of what the prefix cache holds, so that another engine, in another process, goes on from
 * there: with the same answers, to the bit, as this one. It fits engines on the same model with the
 * same formats and kinds of devices; n_ctx, n_seq and sizes of caches may differ. Requests find
 * what was saved only with the cache_salt that it was read with.
 *
 * The file holds the tokens of prompts and answers; it gets mode 0600. Whoever can write it can
 * change answers: a file that others may write is refused. */
enum { CARAT_NOTE_BYTES = 16 };
struct carat_prefixes {
    int64_t tokens;  /* those that several anchors have in common count once */
    int64_t anchors; /* positions from which a request can go on */
    uint64_t bytes;  /* of the file; 0: there is none */
};

/* Writes at most `bytes_max` bytes (0: no limit), what was used last first. `note` (NULL: zeros)
 * comes back from carat_prefixes_note. The old file stays until the new one is whole. *out may be
 * NULL. Between steps. CARAT_EIO, CARAT_EDEVICE, CARAT_EMEMORY. CARAT_EBUSY: another process is
 * writing it. CARAT_EUSAGE: the path names something that is no file of saved prefixes, or the
 * engine has no prefix cache. */
int carat_prefixes_save(carat_engine *engine, const char *path, uint64_t bytes_max,
                        const uint8_t *note, struct carat_prefixes *out, struct carat_error *err);

/* Takes in what a file holds, as far as free pages go; all of the file is checked, and after an
 * error nothing of it is in the cache. *out (may be NULL) is what was taken in. A file that is not
 * there has nothing: CARAT_OK. Between steps.
 *
 * CARAT_ECHECKSUM: it is cut or damaged. CARAT_EUNSUPPORTED: it is of another version, model or
 * setting. After both, the next save replaces it. CARAT_EUSAGE: it is something else, or others may
 * write it, or the engine has no prefix cache. CARAT_EIO, CARAT_EDEVICE, CARAT_EMEMORY. */
int carat_prefixes_load(carat_engine *engine, const char *path, struct carat_prefixes *out,
                        struct carat_error *err);

/* The note in a file, whatever it is for: CARAT_NOTE_BYTES bytes, zeros if there is no file. Errors
 * as above, but only the beginning of the file is looked at. */
int carat_prefixes_note(const char *path, uint8_t *note, struct carat_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
