/* Ctrl-C, Ctrl-Z, a window that changes its size, SIGTERM, SIGHUP, and a model file that shrinks
 * under us.
 *
 * Ctrl-C leaves at once (130), except
 * - between interrupt_begin and interrupt_end, where the first one only sets a flag;
 * - between reading_begin and reading_end, where each is told by wait_for_input. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

enum { EXIT_HANGUP = 129, EXIT_INTERRUPTED = 130, EXIT_TERMINATED = 143 };

void signals_open(void);
void interrupt_begin(void);
void interrupt_end(void);
bool interrupt_wanted(void); /* Ctrl-C came since interrupt_begin or reading_begin */

/* Called before a signal ends the program, whichever can be caught; async-signal-safe. */
void signals_on_leave(void (*call)(void));

void reading_begin(void);
void reading_end(void);

enum input_event { INPUT_READY, INPUT_INTERRUPTED, INPUT_RESIZED, INPUT_RESUMED };

/* Waits until standard input can be read or something else happens, and tells one thing a call,
 * also what has happened since reading_begin. Another window size and the return from Ctrl-Z are
 * told only where signals_keep_terminal was called. */
enum input_event wait_for_input(void);

/* Notes the terminal as it is now: that is put back before the program ends by a signal, and while
 * Ctrl-Z has stopped it. When it goes on, it finds the terminal as it left it. */
void signals_keep_terminal(void);
void signals_restore_terminal(void);

/* Bracketed paste: the terminal marks what is pasted. Put back like the rest. */
void signals_set_paste_marks(bool on);

#endif
