/* Everything that is printed: results to standard output, all else to standard error.
 *
 * Rules
 * 1. A result is written with out_*; main calls out_finish once, which turns a full disk or a
 *    closed output into an error. Text written there is exact, except model text on a terminal.
 * 2. Progress appears only where standard error is a terminal, and not with --quiet.
 * 3. Texts from a file reach a terminal only through add_escaped. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/status.h"

void terminal_open(void); /* once; looks at NO_COLOR, TERM, CI and the streams */
void terminal_set_quiet(bool quiet);
void terminal_set_wrap(bool wraps); /* whether out_answer_text breaks lines; it does */
bool terminal_is_quiet(void);
bool out_is_terminal(void);

/* Standard output. The functions return whether everything so far was written. */
bool out_write(const char *bytes, size_t length);
bool out_text(const char *text);
bool out_printf(const char *form, ...) __attribute__((format(printf, 1, 2)));
bool out_model_text(const char *text, size_t length); /* escaped on a terminal, flushed */
/* The same, with lines broken between words (wrap.h). A word is held until it is whole; any other
 * output and out_flush release it. */
bool out_answer_text(const char *text, size_t length);
bool out_flush(void);
int out_finish(int exit_status); /* the exit status to end with */

/* Standard error. */
int report(const struct carat_error *err); /* "carat: error: ..."; returns the exit status */
void note(const char *form, ...) __attribute__((format(printf, 1, 2)));
void err_printf(const char *form, ...) __attribute__((format(printf, 1, 2)));
void err_thought(const char *text, size_t length); /* dim on a terminal, wrapped */
void err_thought_end(void);

/* A line that replaces itself; total 0: just a label. progress_end removes it. */
void progress(const char *label, int done, int total);
/* The same with any text of printable characters. It is left out if another one was printed a
 * moment ago, unless `is_last`. */
void progress_text(const char *text, bool is_last);
bool progress_is_shown(void); /* whether there is such a line at all */
void progress_end(void);

/* Appends `text` with control characters, direction overrides and invalid UTF-8 made visible.
 * Newlines and tabs stay when `keep_lines`. */
void add_escaped(struct buf *out, const char *text, size_t length, bool keep_lines);

#endif
