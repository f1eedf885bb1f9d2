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

/* Ended too early: by the limit, or inside a call. */
bool reply_is_cut(const struct reply_answer *answer);

#endif
