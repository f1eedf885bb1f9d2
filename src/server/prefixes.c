#include "server/prefixes.h"

#include <string.h>

#include "base/os.h"
#include "server/log.h"

_Static_assert(sizeof(struct hash_key) == CARAT_NOTE_BYTES, "a file's note is the secret");

struct hash_key prefixes_secret(const struct prefixes_options *o)
{
    static const struct hash_key none;
    struct hash_key secret = none;
    uint8_t note[CARAT_NOTE_BYTES];
    if (o->path && carat_prefixes_note(o->path, note, NULL) == CARAT_OK)
        memcpy(&secret, note, sizeof secret);
    return memcmp(&secret, &none, sizeof none) == 0 ? hash_key_random() : secret;
}

static void log_counts(const char *event, const struct prefixes_options *o,
                       const struct carat_prefixes *p, double since)
{
    const struct log_field fields[] = {
        LOG_TEXT_FIELD("file", o->path), LOG_NUMBER("tokens", p->tokens),
        LOG_NUMBER("anchors", p->anchors), LOG_NUMBER("bytes", p->bytes),
        LOG_NUMBER("seconds", os_seconds() - since)};
    log_event(LOG_INFO, event, fields, 5);
}

static void log_problem(enum log_level level, const char *event, const struct carat_error *err)
{
    const struct log_field fields[] = {LOG_TEXT_FIELD("why", err->message),
                                       LOG_TEXT_FIELD("hint", err->hint)};
    log_event(level, event, fields, err->hint[0] ? 2 : 1);
}

int prefixes_load(const struct prefixes_options *o, carat_engine *engine, struct carat_error *err)
{
    struct carat_prefixes found;
    struct carat_error why = {0};
    const double since = os_seconds();
    if (!o->path) return CARAT_OK;
    int status = carat_prefixes_load(engine, o->path, &found, &why);
    if (status == CARAT_ECHECKSUM || status == CARAT_EUNSUPPORTED) {
        log_problem(LOG_WARN, "prompts_refused", &why);
        return CARAT_OK;
    }
    if (status == CARAT_OK && found.bytes > 0) log_counts("prompts_loaded", o, &found, since);
    if (status != CARAT_OK && err) *err = why;
    return status;
}

void prefixes_save(const struct prefixes_options *o, struct hash_key secret, carat_engine *engine)
{
    struct carat_prefixes kept;
    struct carat_error why = {0};
    uint8_t note[CARAT_NOTE_BYTES];
    const double since = os_seconds();
    if (!o->path || o->is_read_only) return;
    memcpy(note, &secret, sizeof note);
    if (carat_prefixes_save(engine, o->path, o->bytes_max, note, &kept, &why) == CARAT_OK)
        log_counts("prompts_kept", o, &kept, since);
    else
        log_problem(LOG_ERROR, "prompts_not_kept", &why);
}
