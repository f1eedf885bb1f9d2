/* The server's log on standard error: one line an event, text or JSON. Any thread.
 *
 * Control characters and invalid UTF-8 of values are escaped, so that no client can forge a line.
 * Prompts, answers and keys are never given to it. */
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };
enum { LOG_VALUE_MAX = 2048 }; /* bytes of a text; longer ones are cut and end in "..." */

/* Once, before threads start. With a journal on standard error, lines begin with <N>, and text has
 * no time, as the journal has it. Without this call: text, from LOG_INFO on. */
void log_open(enum log_format format, enum log_level least);

struct log_field {
    const char *key;
    const char *text; /* NULL: `number` */
    double number;
};
#define LOG_TEXT_FIELD(k, v) ((struct log_field){.key = (k), .text = (v)})
#define LOG_NUMBER(k, v) ((struct log_field){.key = (k), .number = (double)(v)})

/* log_event(LOG_INFO, "request", (struct log_field[]){LOG_TEXT_FIELD("id", id)}, 1);
 * `event` and keys are words of the program: [a-z_]+. */
void log_event(enum log_level level, const char *event, const struct log_field *fields, int n);

#endif
