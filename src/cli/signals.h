/* Ctrl-C, SIGTERM, and a model file that shrinks under us.
 *
 * Ctrl-C leaves at once (130) unless something is being answered: between interrupt_begin and
 * interrupt_end the first one only sets a flag. A second one always leaves. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

enum { EXIT_INTERRUPTED = 130, EXIT_TERMINATED = 143 };

void signals_open(void);
void interrupt_begin(void);
void interrupt_end(void);
bool interrupt_wanted(void); /* Ctrl-C came since interrupt_begin */

/* What the handlers put back before they leave: the terminal as it is now. */
void signals_keep_terminal(void);
void signals_restore_terminal(void);

#endif
