#include "cli/field_rows.h"

#include <string.h>

#include "base/json_writer.h"

static size_t flat_count(const struct field *fields, size_t n)
{
    while (n > 0 && fields[n - 1].kind == FIELD_LIST) n--;
    return n;
}

static void add_quoted(struct buf *b, const char *text, char quote)
{
    buf_add_char(b, quote);
    for (; *text; text++) {
        if (*text == quote) buf_add_char(b, quote);
        buf_add_char(b, *text);
    }
    buf_add_char(b, quote);
}

static void add_flat(struct buf *b, const struct field *f, char quote, const char *null)
{
    switch (f->kind) {
    case FIELD_TEXT: add_quoted(b, f->text, quote); break;
    case FIELD_INT:
    case FIELD_BOOL: buf_printf(b, "%lld", (long long)f->integer); break;
    case FIELD_REAL: buf_printf(b, "%.6f", f->real); break;
    default: buf_add_text(b, null); break;
    }
}

static void add_csv(struct buf *b, const struct field *fields, size_t n, bool is_first)
{
    for (size_t i = 0; is_first && i < n; i++)
        buf_printf(b, "%s%s", fields[i].key, i + 1 < n ? "," : "\n");
    for (size_t i = 0; i < n; i++) {
        if (i) buf_add_char(b, ',');
        add_flat(b, &fields[i], '"', "");
    }
    buf_add_char(b, '\n');
}

static void add_sql(struct buf *b, const char *table, const struct field *fields, size_t n,
                    bool is_first)
{
    if (is_first) {
        buf_printf(b, "CREATE TABLE IF NOT EXISTS %s (\n", table);
        for (size_t i = 0; i < n; i++)
            buf_printf(b, "  %s %s%s\n", fields[i].key,
                       fields[i].kind == FIELD_TEXT                                   ? "TEXT"
                       : fields[i].kind == FIELD_REAL || fields[i].kind == FIELD_NULL ? "REAL"
                                                                                      : "INTEGER",
                       i + 1 < n ? "," : "");
        buf_add_text(b, ");\n\n");
    }
    buf_printf(b, "INSERT INTO %s (", table);
    for (size_t i = 0; i < n; i++) buf_printf(b, "%s%s", i ? ", " : "", fields[i].key);
    buf_add_text(b, ") VALUES (");
    for (size_t i = 0; i < n; i++) {
        if (i) buf_add_text(b, ", ");
        add_flat(b, &fields[i], '\'', "NULL");
    }
    buf_add_text(b, ");\n");
}

static void add_json(struct buf *b, const struct field *fields, size_t n)
{
    struct json j = {.out = b};
    json_begin_object(&j);
    for (size_t i = 0; i < n; i++) {
        const struct field *f = &fields[i];
        json_key(&j, f->key);
        switch (f->kind) {
        case FIELD_TEXT: json_put_string(&j, f->text); break;
        case FIELD_INT: json_int(&j, f->integer); break;
        case FIELD_BOOL: json_bool(&j, f->integer != 0); break;
        case FIELD_REAL: json_double(&j, f->real); break;
        case FIELD_NULL: json_put_null(&j); break;
        case FIELD_LIST:
            json_begin_array(&j);
            for (size_t k = 0; k < f->n_list; k++) json_double(&j, f->list[k]);
            json_end_array(&j);
            break;
        }
    }
    json_end_object(&j);
}

void field_rows_add(struct buf *out, const char *format, const char *table,
                    const struct field *fields, size_t n, bool is_first)
{
    bool is_array = strcmp(format, "json") == 0;
    if (strcmp(format, "csv") == 0) {
        add_csv(out, fields, flat_count(fields, n), is_first);
    } else if (strcmp(format, "sql") == 0) {
        add_sql(out, table, fields, flat_count(fields, n), is_first);
    } else {
        if (is_array) buf_add_text(out, is_first ? "[\n" : ",\n");
        add_json(out, fields, n);
        if (!is_array) buf_add_char(out, '\n');
    }
}

void field_rows_end(struct buf *out, const char *format)
{
    if (strcmp(format, "json") == 0) buf_add_text(out, "\n]\n");
}
