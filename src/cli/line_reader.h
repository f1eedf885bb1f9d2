/* Lines that a person types: with libedit where it was built in and standard input is a
 * terminal, plainly otherwise. */
#ifndef CLI_LINE_READER_H
#define CLI_LINE_READER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

struct line_reader;

/* `history`: file of earlier lines, or NULL. */
int line_reader_open(struct line_reader **out, const char *history, struct carat_error *err);
void line_reader_close(struct line_reader *reader);

enum line_end { LINE_READ, LINE_EOF, LINE_INTERRUPTED };

/* Reads one line without its newline into `out` (emptied first). A pasted block comes as one
 * line with newlines in it. */
enum line_end line_reader_next(struct line_reader *reader, const char *prompt, struct buf *out);

/* Keeps a line for the arrow keys and the next time. */
void line_reader_remember(struct line_reader *reader, const char *line);

#endif
