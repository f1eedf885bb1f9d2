/* Values written as JSON again. */
#ifndef SUPPORT_VALUES_H
#define SUPPORT_VALUES_H

#include "base/json_writer.h"
#include "carat.h"

/* Keys end with a NUL, as those that were read from JSON do. */
void put_value(struct json *j, const struct carat_value *v);

#endif
