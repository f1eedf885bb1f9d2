/* /set of chat: changes settings of a generation during a chat, with the names and checks of the
 * command line. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "base/buf.h"
#include "cli/generate.h"

struct stop_list {
    char *texts[CARAT_STOPS_MAX]; /* owned */
    size_t n;
};

/* Copies the stop strings of the command line; afterwards the generation borrows from `stops`. */
int settings_open(struct stop_list *stops, struct generation *g, struct carat_error *err);
void settings_close(struct stop_list *stops);

/* The n-th name, NULL at the end. */
const char *settings_name(size_t n);

/* "temp 0.5"; "stop TEXT" adds a stop string, "stop" removes them all. */
int settings_set(struct generation *g, struct stop_list *stops, const char *text,
                 const carat_model *model, struct carat_error *err);

/* Adds "top_k;temperature", or "none", of the letters of samplers. */
void add_samplers(struct buf *out, const char *letters);

/* Prints all settings on standard error. */
void settings_print(const struct generation *g);

#endif
