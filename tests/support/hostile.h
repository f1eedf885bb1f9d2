/* Malformed model files: a table of cases, and how each of them is made from a tiny model. */
#ifndef SUPPORT_HOSTILE_H
#define SUPPORT_HOSTILE_H

#include "support/scratch.h"
#include "support/tiny_model.h"

struct hostile_case;

/* What a case works on. Either the writer is changed and saved, or `image` is filled. */
struct hostile_maker {
    const struct hostile_case *test;
    const struct scratch *scratch;
    struct gguf_writer writer; /* holds the tiny model of the case's size */
    struct buf image;
    char path[512]; /* the file to open; may be set to something else */
    bool is_saved;  /* the case has made the file at `path` itself */
};

struct hostile_case {
    const char *name;
    const char *expected; /* part of the message; NULL: a legal file */
    void (*make)(struct hostile_maker *m);
    enum gemma_size size; /* of the tiny model */
    int exit_status;      /* 0: 3, or 0 for a legal file */
    /* For the shared `make` functions: the key, tensor or text, and what to put there. */
    const char *object;
    int field;
    uint64_t number;
    double real;
    const char *text;
};

size_t hostile_count(void);
const struct hostile_case *hostile_at(size_t i);

/* Makes the file in `scratch`; its path is written to `path`. */
void hostile_make(const struct hostile_case *test, const struct scratch *scratch, char path[512]);

/* The lists of cases in hostile_container.c and hostile_model.c. */
struct hostile_list {
    const struct hostile_case *cases;
    size_t n;
};
struct hostile_list hostile_container_cases(void);
struct hostile_list hostile_model_cases(void);

/* Saves the writer into m->image. */
void maker_image(struct hostile_maker *m);

#endif
