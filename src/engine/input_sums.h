/* carat_importance: what the products of a model have read so far, as sums of squares. */
#ifndef ENGINE_INPUT_SUMS_H
#define ENGINE_INPUT_SUMS_H

#include "backend/backend.h"
#include "carat_quantize.h"

/* Adds rows; a product_observer, with a carat_importance as its user. Takes no memory. */
void importance_add(void *user, const struct product_rows *rows);

#endif
