/* Reads typed lines: with libedit if it was built in and standard input is a terminal, else without
 * editing. */
#ifndef CLI_LINE_READER_H
#define CLI_LINE_READER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "cli/completions.h"

struct line_reader;

/* `history`: file of earlier lines, or NULL. A note reports problems with it once. */
int line_reader_open(struct line_reader **out, const char *history, struct carat_error *err);
void line_reader_close(struct line_reader *reader);

/* Interrupted: Ctrl-C on an empty line. On any other line Ctrl-C empties it. Without libedit the
 * system's line editing empties it, and LINE_INTERRUPTED comes for every Ctrl-C. */
enum line_end { LINE_READ, LINE_EOF, LINE_INTERRUPTED };

/* Reads one line of any bytes, without its newline, into `out` (emptied first). A pasted block and
 * lines joined by Alt-Enter come as one line with newlines in it. */
enum line_end line_reader_next(struct line_reader *reader, const char *prompt, struct buf *out);

/* Says what Tab does; without it, Tab is a tab. */
void line_reader_set_completion(struct line_reader *reader, complete_fn complete, void *user);

/* Keeps a line for the arrow keys and, in the file, for later chats. */
void line_reader_remember(struct line_reader *reader, const char *line, size_t length);

#endif
