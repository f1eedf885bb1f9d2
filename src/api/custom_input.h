/* The text of a custom tool while its call comes. In the prompt such a tool is a function with the
 * one argument "input", so what comes is {"input":"TEXT"}, bit by bit, as base/json_writer.h and
 * text/call_stream.h write it. */
#ifndef API_CUSTOM_INPUT_H
#define API_CUSTOM_INPUT_H

#include "base/buf.h"

enum custom_input_place { INPUT_HEAD, INPUT_TEXT, INPUT_OVER, INPUT_OTHER };

struct custom_input { /* zeroed: nothing was read */
    enum custom_input_place place;
    size_t at; /* bytes of the arguments that were read */
};

/* Goes on to the end of the arguments, which only grow. Appends the text that has become certain:
 * whole characters. Arguments that do not begin with that member have none (INPUT_OTHER). */
void custom_input_read(struct custom_input *c, const char *json, size_t length, struct buf *text);

#endif
