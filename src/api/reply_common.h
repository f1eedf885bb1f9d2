/* What forms of several APIs need. */
#ifndef API_REPLY_COMMON_H
#define API_REPLY_COMMON_H

#include "api/reply_form.h"

/* PREFIX and an id that no other call or item of this request has: "call_ID_0_1". */
enum { REPLY_ID_MAX = 128 };
const char *reply_item_id(const struct reply *r, const char *prefix, int32_t answer, int32_t item,
                          char out[REPLY_ID_MAX]);

/* Of all answers. A prompt with several answers counts once. */
struct reply_usage reply_usage_sum(const struct reply *r);

/* Writes a JSON object as it is, but with blanks for the line ends between its values: these would
 * end a stream's line or event. Writes {} for a text that is no object, because it was cut. */
void reply_write_object(const struct buf *text, struct json *j);

/* An error's body in the words of the reply's API, without its line end. */
void reply_write_error(const struct reply *r, const struct api_error *error, struct buf *out);

/* Ended too early: by the limit, or inside a call. */
bool reply_is_cut(const struct reply_answer *answer);

#endif
