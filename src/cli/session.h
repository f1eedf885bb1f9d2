/* A model and an engine on it, as the options say. Most commands begin with these. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "carat_inspect.h"

#include "base/buf.h"
#include "cli/options.h"

struct session {
    const struct options *options;
    struct buf name, path; /* of the model: how it was asked for, its file */
    struct buf draft_path; /* of its drafter, or empty */
    bool finds_drafter;    /* session_load looks for it */
    carat_model *model;
    carat_drafter *drafter;      /* or NULL */
    carat_engine *engine;        /* NULL until session_start */
    size_t next_argument;        /* the first one after MODEL */
    bool is_auto;                /* nobody has named a backend */
    bool is_silent;              /* session_start prints no note */
    bool tells_memory;           /* prints the memory before it is taken: a line or, */
    bool is_verbose;             /* the whole table */
    struct carat_roofline limit; /* measured by bench */
    int32_t limit_threads;       /* threads it was measured with; 0: not yet measured */
    struct buf told;             /* the last note of session_start */
};

/* The model that --model, --hf-repo or --model-url names; "" if none does. Returns whether one of
 * them is on the command line. */
bool named_by_options(const struct options *o, struct buf *name);

/* Whether the first argument names the model. It does not when --model is given. When CARAT_MODEL
 * is set and the command takes text too, it does only if there is a model of that name. */
bool first_argument_is_model(const struct options *o);

/* Finds the model: --model, else the first argument, else CARAT_MODEL; then opens it, and the
 * drafter of --model-draft. What is missing may be pulled. */
int session_open(struct session *s, const struct options *o, struct carat_error *err);

/* The two halves of session_open, for commands that do not open the model or that check their
 * output file in between. */
int session_find(struct session *s, const struct options *o, struct carat_error *err);
int session_load(struct session *s, struct carat_error *err);
/* Opens a model that the options do not name. */
int session_open_name(struct session *s, const struct options *o, const char *name,
                      struct carat_error *err);

/* Opens the engine. A note says what it computes on and what does not fit there, unless the last
 * note said the same. */
int session_start(struct session *s, const struct carat_engine_options *options,
                  struct carat_error *err);
/* Sets the drafter and the callbacks of `options`: an engine opened with them tells its memory and
 * its progress as in session_start. */
void session_tell(struct session *s, struct carat_engine_options *options);
/* Appends setup_add_line and, if the preferred backend was not chosen, the reason. */
void session_add_setup(const struct session *s, struct buf *line);
void session_print_profile(const struct session *s); /* to standard error */
void session_close(struct session *s);

/* Checks options together: keys and values must have one type. CARAT_EUSAGE names both. */
int check_options(const struct options *o, struct carat_error *err);

/* --backend, --ctx-size, --chunk, --kv-type, --threads ... of a command. */
struct carat_engine_options engine_options(const struct options *o);
/* The threads that an option asks for. If far fewer can run here at a time, their number, with a
 * note. */
int32_t threads_within(int64_t asked);
/* The smallest context size with room for this many positions: the engine has a minimum of 64, or
 * the model's own context if that is smaller. */
int32_t context_for(const carat_model *model, int32_t positions);
/* The part of engine_options about the device, which bench needs too. */
void set_device_options(const struct options *o, struct carat_engine_options *out);
/* Divides layers between GPU and CPU. Changes nothing if --backend auto found no GPU. `gpu_layers`
 * as users count them: 0 is none, -1 as many as fit. */
void set_layers(const struct options *o, struct carat_engine_options *out, int64_t gpu_layers,
                int32_t cpu_experts);
const char *session_backend(const struct options *o);                    /* never "auto" */
int32_t chunk_within(int32_t chunk, int32_t batch, const char *backend); /* -ub, -b; 0: default */
enum carat_kv_type kv_type_named(const char *name);
enum carat_precision session_precision(const struct options *o);

/* Arguments from `first` on, joined by blanks. */
void join_arguments(const struct options *o, size_t first, struct buf *out);

/* Refuses arguments from `first` on. */
int no_more_arguments(const struct options *o, size_t first, struct carat_error *err);

#endif
