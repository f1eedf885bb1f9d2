#include "support/values.h"

void put_value(struct json *j, const struct carat_value *v)
{
    switch (v->kind) {
    case CARAT_NULL: json_put_null(j); break;
    case CARAT_BOOL: json_bool(j, v->as.boolean); break;
    case CARAT_INT: json_int(j, v->as.integer); break;
    case CARAT_REAL: json_double(j, v->as.real); break;
    case CARAT_STRING: json_text(j, v->as.string.data, v->as.string.length); break;
    case CARAT_ARRAY:
        json_begin_array(j);
        for (size_t i = 0; i < v->as.array.count; i++) put_value(j, &v->as.array.items[i]);
        json_end_array(j);
        break;
    case CARAT_OBJECT:
        json_begin_object(j);
        for (size_t i = 0; i < v->as.object.count; i++) {
            json_key(j, v->as.object.members[i].key.data);
            put_value(j, &v->as.object.members[i].value);
        }
        json_end_object(j);
        break;
    }
}
