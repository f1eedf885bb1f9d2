/* Rows of named values as CSV, SQL, JSON or JSON lines: one list of fields gives all four. */
#ifndef CLI_FIELD_ROWS_H
#define CLI_FIELD_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* NULL is for values that a row does not have: null in JSON, nothing in CSV, NULL in SQL. */
enum field_kind { FIELD_TEXT, FIELD_INT, FIELD_BOOL, FIELD_REAL, FIELD_NULL, FIELD_LIST };

struct field {
    const char *key;
    enum field_kind kind;
    const char *text;
    int64_t integer;
    double real;
    const double *list; /* n_list of them */
    size_t n_list;
};

/* `format` is "csv", "sql", "json" or "jsonl". The first row brings what comes before all rows: the
 * keys, the table's definition, the bracket. CSV and SQL have no lists: they get the fields before
 * the first one, and lists must be the last fields. `table` names SQL's table. */
void field_rows_add(struct buf *out, const char *format, const char *table,
                    const struct field *fields, size_t n, bool is_first);

/* What comes after the last row. */
void field_rows_end(struct buf *out, const char *format);

#endif
