#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int carat_exit_status(enum carat_status code)
{
    switch (code) {
#define X(name, value, exit_status, text)                                                          \
    case CARAT_##name: return exit_status;
        CARAT_STATUS_LIST(X)
#undef X
    }
    return 1;
}

const char *carat_status_text(enum carat_status code)
{
    switch (code) {
#define X(name, value, exit_status, text)                                                          \
    case CARAT_##name: return text;
        CARAT_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

int err_set(struct carat_error *err, enum carat_status code, const char *form, ...)
{
    if (err) {
        va_list arguments;
        va_start(arguments, form);
        vsnprintf(err->message, sizeof err->message, form, arguments);
        va_end(arguments);
        err->code = code;
        err->hint[0] = '\0';
    }
    return code;
}

void err_hint(struct carat_error *err, const char *form, ...)
{
    if (!err) return;
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(err->hint, sizeof err->hint, form, arguments);
    va_end(arguments);
}

int err_within(struct carat_error *err, const char *form, ...)
{
    if (!err) return CARAT_EINTERNAL;
    char where[sizeof err->message];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(where, sizeof where, form, arguments);
    va_end(arguments);
    size_t used = strlen(where);
    if (used + 3 < sizeof where)
        snprintf(where + used, sizeof where - used, ": %.*s", (int)(sizeof where - used - 3),
                 err->message);
    memcpy(err->message, where, sizeof where);
    return err->code;
}

int err_no_memory(struct carat_error *err, const char *what, size_t bytes)
{
    err_set(err, CARAT_EMEMORY, "%s: no memory for %zu bytes", what, bytes);
    err_hint(err, "close other programs, or use a smaller model or context");
    return CARAT_EMEMORY;
}
