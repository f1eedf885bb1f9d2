/* Ctrl-C, Ctrl-Z, a window that changes its size, SIGTERM, SIGHUP, and a model file that is cut
 * short while it is mapped.
 *
 * Ctrl-C leaves at once (130), except
 * - between interrupt_begin and interrupt_end, where the first one only sets a flag;
 * - between reading_begin and reading_end, where wait_for_input reports each. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

enum { EXIT_HANGUP = 129, EXIT_INTERRUPTED = 130, EXIT_TERMINATED = 143 };

void signals_open(void);
void interrupt_begin(void);
void interrupt_end(void);
bool interrupt_wanted(void); /* Ctrl-C came since interrupt_begin or reading_begin */

/* `call` runs before a signal that can be caught ends the program. It must be async-signal-safe. */
void signals_on_leave(void (*call)(void));

void reading_begin(void);
void reading_end(void);

enum input_event { INPUT_READY, INPUT_INTERRUPTED, INPUT_RESIZED, INPUT_RESUMED };

/* Waits until standard input can be read or something else happens. Each call reports one event,
 * even one since reading_begin. A new window size and the return from Ctrl-Z are reported only
 * after signals_keep_terminal. */
enum input_event wait_for_input(void);

/* Remembers the modes that the terminal has now. They are restored before a signal ends the program
 * and while Ctrl-Z has stopped it. When it continues, it gets its own modes back. */
void signals_keep_terminal(void);
void signals_restore_terminal(void);

/* Bracketed paste: the terminal marks what is pasted. Restored like the modes. */
void signals_set_paste_marks(bool on);

#endif
