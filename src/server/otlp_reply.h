/* What a collector says of a body that it has taken. Pure. */
#ifndef SERVER_OTLP_REPLY_H
#define SERVER_OTLP_REPLY_H

#include <stddef.h>

enum { OTLP_REPLY_MAX = 4096 }; /* bytes; longer ones say nothing that counts */

/* How many of n spans it has refused nevertheless: partialSuccess.rejectedSpans, a number or its
 * digits as a text. Whatever is not such a reply refuses none. */
size_t otlp_reply_rejected(const char *text, size_t length, size_t n);

#endif
