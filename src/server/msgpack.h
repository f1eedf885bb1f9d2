/* Writing MessagePack, as far as lists of numbers and words need it. */
#ifndef SERVER_MSGPACK_H
#define SERVER_MSGPACK_H

#include <stdint.h>

#include "base/buf.h"

void msgpack_array(struct buf *out, uint32_t n); /* the head: n values follow */
void msgpack_nil(struct buf *out);
void msgpack_uint(struct buf *out, uint64_t value);
void msgpack_real(struct buf *out, double value);
void msgpack_text(struct buf *out, const char *text); /* UTF-8, shorter than 64 KiB */

#endif
