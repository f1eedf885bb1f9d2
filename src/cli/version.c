#include "cli/version.h"

#include "base/json_writer.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/setup.h"
#include "cli/session.h"
#include "cli/terminal.h"

/* Given by CMake to this file and src/server/metrics.c alone, so that a new commit recompiles
 * nothing else. */
#ifndef CARAT_COMMIT
#define CARAT_COMMIT "unknown"
#endif
#ifndef CARAT_BUILD_NUMBER
#define CARAT_BUILD_NUMBER 0
#endif
#ifndef CARAT_BUILD_TYPE
#define CARAT_BUILD_TYPE "unknown"
#endif

const char *version_commit(void)
{
    return CARAT_COMMIT;
}

int version_build_number(void)
{
    return CARAT_BUILD_NUMBER;
}

const char *version_build_type(void)
{
    return CARAT_BUILD_TYPE;
}

/* A list that the compiler puts together: each with a blank before it. */
#ifdef CARAT_HAVE_JSON
#define JSON_LIBRARY " jansson"
#else
#define JSON_LIBRARY
#endif
#ifdef CARAT_HAVE_EDIT
#define EDIT_LIBRARY " libedit"
#else
#define EDIT_LIBRARY
#endif
#ifdef CARAT_HAVE_HTTP
#define HTTP_LIBRARY " libmicrohttpd"
#else
#define HTTP_LIBRARY
#endif
#ifdef CARAT_HAVE_TLS
#define TLS_LIBRARY " gnutls"
#else
#define TLS_LIBRARY
#endif
#ifdef CARAT_HAVE_FETCH
#define FETCH_LIBRARY " libcurl"
#else
#define FETCH_LIBRARY
#endif
#ifdef CARAT_HAVE_ZMQ
#define ZMQ_LIBRARY " libzmq"
#else
#define ZMQ_LIBRARY
#endif

const char *version_libraries(void)
{
    static const char all[] =
        JSON_LIBRARY EDIT_LIBRARY HTTP_LIBRARY TLS_LIBRARY FETCH_LIBRARY ZMQ_LIBRARY "";
    return all[0] ? all + 1 : "none";
}

int command_version(const struct options *o)
{
    struct buf b = {0};
    struct carat_error err = {0};
    if (no_more_arguments(o, 0, &err) != CARAT_OK) return report(&err);
    if (!opt_is_set(o, OPT_JSON)) {
        backends_add_line(&b);
        out_printf("carat %s (commit %s, %s)\nbackends: %s\n", CARAT_VERSION, CARAT_COMMIT,
                   CARAT_BUILD_TYPE, buf_text(&b));
        buf_deinit(&b);
        return 0;
    }
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_string(&j, "version", CARAT_VERSION);
    json_key_string(&j, "commit", CARAT_COMMIT);
    json_key_int(&j, "build_number", CARAT_BUILD_NUMBER);
    json_key_string(&j, "build_type", CARAT_BUILD_TYPE);
    json_key_string(&j, "libraries", version_libraries());
    json_key(&j, "backends");
    backends_add_json(&j);
    json_end_object(&j);
    out_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
    return 0;
}
