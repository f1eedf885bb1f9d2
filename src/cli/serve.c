/* carat serve: a model behind HTTP. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/config_values.h"
#include "cli/engines.h"
#include "cli/generate.h"
#include "cli/prompt_cache.h"
#include "cli/session.h"
#include "cli/setup.h"
#include "cli/terminal.h"
#include "cli/tracing.h"
#include "cli/version.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/server.h"

struct serving {
    const struct options *o;
    struct session session;
    struct engines engines;
    struct server_options server;
    struct generation *generation; /* server.sampling borrows from it */
    struct buf alias, build, url, topic, service;
};

/* A blob of ollama's store, whose file has no name of its own, is called as it was asked for. */
static void name_blob(struct serving *v)
{
    struct buf typed = {0};
    if (first_argument_is_model(v->o))
        buf_add_text(&typed, v->o->arguments[0]);
    else
        named_by_options(v->o, &typed);
    const char *name = buf_text(&typed);
    if (strncmp(name, "ollama:", 7) == 0) name += 7;
    buf_add_text(&v->alias, name);
    buf_deinit(&typed);
}

/* The file's name without folder, ending and number of its part. */
static void name_model(struct serving *v)
{
    const char *given = opt_text(v->o, OPT_ALIAS);
    const char *path = buf_text(&v->session.path), *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (given && given[0]) {
        buf_add_text(&v->alias, given);
        return;
    }
    if (strncmp(name, "sha256-", 7) == 0) {
        name_blob(v);
        return;
    }
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) n -= 5;
    if (n > 15 && strncmp(name + n - 15, "-00001-of-", 10) == 0) n -= 15;
    buf_add(&v->alias, name, n);
}

/* As many sequences of each engine as are asked for; else four if they fit. */
static void choose_sequences(struct serving *v)
{
    enum { USUAL = 4 };
    struct carat_memory memory;
    int32_t asked = (int32_t)opt_int(v->o, OPT_PARALLEL);
    for (size_t i = 0; i < v->engines.n; i++) {
        struct carat_engine_options *e = &v->engines.all[i];
        e->n_seq = asked > 0 ? asked : USUAL;
        if (asked > 0) continue;
        if (carat_memory_estimate(v->session.model, e, &memory, NULL) != CARAT_OK) e->n_seq = 1;
    }
}

static int read_sampling(struct serving *v, struct carat_error *err)
{
    v->generation = mem_alloc(1, sizeof *v->generation);
    if (!v->generation) return err_no_memory(err, "options", sizeof *v->generation);
    int status = generation_read(v->generation, v->o, v->session.model, err);
    v->server.sampling = v->generation->sampling;
    return status;
}

static int read_http(const struct options *o, struct http_options *http, struct carat_error *err)
{
    const char *unix_path = opt_text(o, OPT_UNIX), *certificate = opt_text(o, OPT_TLS_CERT);
    const char *key = opt_text(o, OPT_TLS_KEY);
    bool has_certificate = opt_is_set(o, OPT_TLS_CERT), has_key = opt_is_set(o, OPT_TLS_KEY);
    if (has_certificate != has_key)
        return err_set(err, CARAT_EUSAGE, "serve: --tls-cert and --tls-key go together");
    *http = (struct http_options){
        .host = opt_is_set(o, OPT_UNIX) ? NULL : opt_text(o, OPT_HOST),
        .unix_path = opt_is_set(o, OPT_UNIX) ? unix_path : NULL,
        .port = (uint16_t)opt_int(o, OPT_PORT),
        .certificate = has_certificate ? certificate : NULL,
        .private_key = has_key ? key : NULL,
        .connections_max = (int32_t)opt_int(o, OPT_MAX_CONNECTIONS),
        .header_bytes_max = 16 * 1024,
        .body_bytes_max = (size_t)opt_int(o, OPT_MAX_BODY),
        .bodies_bytes_max = (size_t)opt_int(o, OPT_BODY_MEMORY),
        .header_seconds = 20,
        .body_seconds = 30,
        .write_seconds = 60,
        .idle_seconds = 120,
        .low_bytes = 64 * 1024,
    };
    return notify_listen_fd(&http->listen_fd, err);
}

/* "http://127.0.0.1:8080": for a person to click on. */
static void name_address(struct serving *v, uint16_t port)
{
    const struct http_options *http = &v->server.http;
    const char *scheme = http->certificate ? "https" : "http";
    bool is_v6 = http->host && strchr(http->host, ':');
    if (http->unix_path)
        buf_printf(&v->url, "%s", http->unix_path);
    else
        buf_printf(&v->url, is_v6 ? "%s://[%s]:%d" : "%s://%s:%d", scheme, http->host, port);
}

static void on_ready(void *user, uint16_t port, const struct carat_setup *setup)
{
    struct serving *v = user;
    struct buf line = {0};
    progress_end();
    setup_add_line(&line, setup);
    if (v->engines.n > 1) buf_printf(&line, "; %zu engines", v->engines.n);
    note("%s", buf_text(&line));
    name_address(v, port);
    note("%s answers on %s", buf_text(&v->alias), buf_text(&v->url));
    buf_deinit(&line);
}

static void read_guard(const struct options *o, struct guard_options *guard)
{
    const struct option_value *keys = &o->values[OPT_API_KEY];
    const struct option_value *hosts = &o->values[OPT_ALLOWED_HOST];
    const struct option_value *origins = &o->values[OPT_CORS_ORIGIN];
    *guard = (struct guard_options){
        .keys = keys->list,
        .n_keys = keys->n_list,
        .key_file = opt_is_set(o, OPT_API_KEY_FILE) ? opt_text(o, OPT_API_KEY_FILE) : NULL,
        .allowed_hosts = hosts->list,
        .n_allowed_hosts = hosts->n_list,
        .origins = origins->list,
        .n_origins = origins->n_list,
        .requests_per_key = (int32_t)opt_int(o, OPT_KEY_REQUESTS),
    };
}

/* The topic "kv@HOST@MODEL" is what routers of Kubernetes look for: there HOST is the pod. */
static void read_kv_events(struct serving *v)
{
    const struct options *o = v->o;
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    if (opt_is_set(o, OPT_KV_EVENTS_TOPIC))
        buf_add_text(&v->topic, opt_text(o, OPT_KV_EVENTS_TOPIC));
    else
        buf_printf(&v->topic, "kv@%s@%.100s", host, buf_text(&v->alias));
    v->server.kv_events = opt_text(o, OPT_KV_EVENTS);
    v->server.kv_events_replay = opt_text(o, OPT_KV_EVENTS_REPLAY);
    v->server.kv_events_topic = buf_text(&v->topic);
}

static int read_options(struct serving *v, struct carat_error *err)
{
    const struct options *o = v->o;
    struct server_options *s = &v->server;
    name_model(v);
    buf_printf(&v->build, "carat-%s-%s", CARAT_VERSION, version_commit());
    struct carat_engine_options engine = engine_options(o);
    session_tell(&v->session, &engine);
    TRY(engines_read(&v->engines, o, &engine, err));
    choose_sequences(v);
    *s = (struct server_options){
        .model = v->session.model,
        .alias = buf_text(&v->alias),
        .build = buf_text(&v->build),
        .engines = v->engines.all,
        .n_engines = v->engines.n,
        .queue_max = (int32_t)opt_int(o, OPT_MAX_QUEUE),
        .request_seconds = opt_real(o, OPT_TIMEOUT),
        .ping_seconds = opt_real(o, OPT_PING),
        .shutdown_seconds = opt_real(o, OPT_SHUTDOWN_TIMEOUT),
        .says_reasoning = strcmp(opt_text(o, OPT_REASONING_FIELD), "reasoning") == 0,
        .is_strict_model = opt_is_set(o, OPT_STRICT_MODEL),
        .is_metrics_open = opt_is_set(o, OPT_METRICS_OPEN),
        .prefixes = {.path = opt_is_set(o, OPT_PROMPT_CACHE) ? opt_text(o, OPT_PROMPT_CACHE) : NULL,
                     .bytes_max = (uint64_t)opt_int(o, OPT_PROMPT_CACHE_MAX),
                     .is_read_only = opt_is_set(o, OPT_PROMPT_CACHE_RO)},
        .user = v,
        .on_ready = on_ready,
    };
    TRY(read_sampling(v, err));
    read_kv_events(v);
    tracing_read(&s->traces, o, buf_text(&v->alias), &v->service);
    TRY(read_http(o, &s->http, err));
    read_guard(o, &s->guard);
    s->guard.is_local = guard_is_local(&s->http);
    s->is_insecure = opt_is_set(o, OPT_INSECURE);
    return CARAT_OK;
}

static void open_log(const struct options *o)
{
    bool is_json = strcmp(opt_text(o, OPT_LOG_FORMAT), "json") == 0;
    enum log_level least = opt_is_set(o, OPT_VERBOSE) ? LOG_DEBUG
                           : terminal_is_quiet()      ? LOG_WARN
                                                      : LOG_INFO;
    log_open(is_json ? LOG_JSON : LOG_TEXT, least);
}

/* As many connections as the system lets us have; http.h keeps within that. */
static void raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

int command_serve(const struct options *o)
{
    struct serving v = {.o = o};
    struct carat_error err = {0};
    int signal_number = 0;
    open_log(o);
    raise_files();
    note_unknown_variables();
    int status = prompt_cache_check(o, &err);
    if (status == CARAT_OK) status = session_open(&v.session, o, &err);
    if (status == CARAT_OK) status = no_more_arguments(o, v.session.next_argument, &err);
    if (status == CARAT_OK) status = read_options(&v, &err);
    if (status == CARAT_OK) status = server_run(&v.server, &signal_number, &err);
    progress_end();
    session_close(&v.session);
    mem_free(v.generation);
    buf_deinit(&v.alias);
    buf_deinit(&v.build);
    buf_deinit(&v.url);
    buf_deinit(&v.topic);
    buf_deinit(&v.service);
    if (status != CARAT_OK) return report(&err);
    return signal_number ? 128 + signal_number : 0;
}
