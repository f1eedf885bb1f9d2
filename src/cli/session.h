/* A model, and an engine on it, as the options say: what most commands begin with. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "carat_inspect.h"

#include "base/buf.h"
#include "cli/options.h"

struct session {
    struct buf path;
    carat_model *model;
    carat_engine *engine; /* NULL until session_start */
    size_t next_argument; /* the first one after MODEL */
    bool is_auto;         /* nobody has named a backend */
    bool is_silent;       /* session_start notes nothing */
    bool tells_memory;    /* before it is taken: in a line, or all of it: */
    bool is_verbose;
    struct carat_roofline limit; /* what bench has measured, */
    int32_t limit_threads;       /* with so many threads; 0: nothing yet */
    struct buf told;             /* what session_start has noted last */
};

/* Whether the first argument names the model: not when --model does; when CARAT_MODEL gives one and
 * the command takes text too, only if there is a model of that name. */
bool first_argument_is_model(const struct options *o);

/* Finds the model: --model, else the first argument, else CARAT_MODEL; then opens it. */
int session_open(struct session *s, const struct options *o, struct carat_error *err);

/* The two halves of it. The first alone is for commands that do not open the model, or that look at
 * where they write before. */
int session_find(struct session *s, const struct options *o, struct carat_error *err);
int session_load(struct session *s, struct carat_error *err);
/* Another model than the options name. */
int session_open_name(struct session *s, const struct options *o, const char *name,
                      struct carat_error *err);

/* Opens the engine and notes, when it is news, on what it computes and what does not fit there. */
int session_start(struct session *s, const struct carat_engine_options *options,
                  struct carat_error *err);
/* Appends on what it computes, and why not on what comes first by itself: setup_add_line. */
void session_add_setup(const struct session *s, struct buf *line);
void session_print_profile(const struct session *s); /* to standard error */
void session_close(struct session *s);

/* What no option says alone: keys and values of one type. CARAT_EUSAGE names both. */
int check_options(const struct options *o, struct carat_error *err);

/* --backend, --ctx-size, --chunk, --kv-type, --threads ... of a command. */
struct carat_engine_options engine_options(const struct options *o);
/* Threads that an option asks for; where these are far more than can run here at a time, those that
 * can, with a note. */
int32_t threads_within(int64_t asked);
/* A context size for so many positions that the engine takes: it has a minimum, and the model a
 * maximum. */
int32_t context_for(const carat_model *model, int32_t positions);
/* The part of it that tells which device and how it works: what bench needs too. */
void set_device_options(const struct options *o, struct carat_engine_options *out);
/* What a GPU has and what the CPU keeps; nothing is divided where there is no GPU and nobody has
 * named a backend. `gpu_layers` as people count: 0 is none, -1 as many as fit. */
void set_layers(const struct options *o, struct carat_engine_options *out, int64_t gpu_layers,
                int32_t cpu_experts);
const char *backend_of(const struct options *o);                         /* never "auto" */
int32_t chunk_within(int32_t chunk, int32_t batch, const char *backend); /* -ub, -b; 0: default */
enum carat_kv_type kv_type_named(const char *name);
enum carat_precision precision_of(const struct options *o);

/* Arguments from `first` on, joined by blanks. */
void join_arguments(const struct options *o, size_t first, struct buf *out);

/* Refuses arguments from `first` on. */
int no_more_arguments(const struct options *o, size_t first, struct carat_error *err);

#endif
