/* Lines that a person types: with libedit where it was built in and standard input is a
 * terminal, plainly otherwise. */
#ifndef CLI_LINE_READER_H
#define CLI_LINE_READER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "cli/completions.h"

struct line_reader;

/* `history`: file of earlier lines, or NULL. What is wrong with it is told once, as a note. */
int line_reader_open(struct line_reader **out, const char *history, struct carat_error *err);
void line_reader_close(struct line_reader *reader);

/* Interrupted: Ctrl-C on an empty line. On any other it empties the line, if libedit is there;
 * without, the system's own line editing does, and nobody can tell how much was typed. */
enum line_end { LINE_READ, LINE_EOF, LINE_INTERRUPTED };

/* Reads one line without its newline into `out` (emptied first): any bytes. A pasted block and
 * one with lines from Alt-Enter come as one line with newlines in it. */
enum line_end line_reader_next(struct line_reader *reader, const char *prompt, struct buf *out);

/* What Tab does; without, it is a tab. */
void line_reader_set_completion(struct line_reader *reader, complete_fn complete, void *user);

/* Keeps a line for the arrow keys and, in the file, for the next time. */
void line_reader_remember(struct line_reader *reader, const char *line, size_t length);

#endif
