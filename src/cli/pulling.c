#include "cli/pulling.h"

#include <string.h>
#include <strings.h>

#include "base/os.h"
#include "carat.h"
#include "cli/files.h"
#include "cli/models.h"
#include "cli/signals.h"
#include "cli/size_text.h"
#include "cli/terminal.h"
#include "hub/choose.h"

/* ---- What is shown ---------------------------------------------------------------------- */

static bool goes_on(void *user)
{
    (void)user;
    return !interrupt_wanted();
}

static void say(void *user, const char *text)
{
    (void)user;
    note("%s", text);
}

/* "41 %, 1.31 of 3.11 GiB, 45.1 MB/s, 0:41 left" */
static void add_numbers(struct buf *out, const struct hub_progress *now, double rate)
{
    bool is_small = now->size < 1u << 30;
    double unit = is_small ? 1 << 20 : 1 << 30;
    const char *name = is_small ? "MiB" : "GiB";
    if (now->size)
        buf_printf(out, "%3.0f %%, %.2f of %.2f %s", 100.0 * (double)now->done / (double)now->size,
                   (double)now->done / unit, (double)now->size / unit, name);
    else
        buf_printf(out, "%.2f %s", (double)now->done / unit, name);
    if (rate <= 0) return;
    buf_printf(out, ", %.1f MB/s", rate / 1e6);
    double left = now->size ? (double)(now->size - now->done) / rate : 0;
    if (left >= 1 && left < 1e6) buf_printf(out, ", %d:%02d left", (int)left / 60, (int)left % 60);
}

static void add_bar(struct buf *out, const struct hub_progress *now)
{
    enum { WIDTH = 10 };
    int full = now->size ? (int)(WIDTH * ((double)now->done / (double)now->size)) : 0;
    buf_add_char(out, '[');
    for (int i = 0; i < WIDTH; i++) buf_add_char(out, i < full ? '#' : '.');
    buf_add_text(out, "] ");
}

/* A bar on a terminal, else a line for each tenth. */
static void move(void *user, const struct hub_progress *now)
{
    struct pulling *p = user;
    double seconds = os_seconds();
    bool is_last = now->size && now->done >= now->size;
    if (p->file != now->file || now->done < p->begun) {
        p->file = now->file;
        p->begun = now->done;
        p->begun_at = seconds;
        p->tenths = now->size ? (int)(10 * now->done / now->size) : 0;
    }
    int tenths = now->size ? (int)(10 * now->done / now->size) : 0;
    bool is_line = !progress_is_shown() && tenths > p->tenths;
    if (!is_line && !progress_is_shown()) return;
    double passed = seconds - p->begun_at;
    double rate = passed > 0.2 ? (double)(now->done - p->begun) / passed : 0;
    struct buf text = {0}, shown = {0};
    buf_printf(&text, "%s ", now->what);
    if (is_line)
        buf_printf(&text, "%.40s: ", now->file);
    else
        add_bar(&text, now);
    add_numbers(&text, now, rate);
    if (!is_line) buf_printf(&text, ", %.40s", now->file); /* what does not fit is left out */
    add_escaped(&shown, buf_text(&text), text.length, false);
    if (is_line)
        note("%s", buf_text(&shown));
    else
        progress_text(buf_text(&shown), is_last);
    p->tenths = tenths;
    buf_deinit(&text);
    buf_deinit(&shown);
}

void watching_begin(struct pulling *p)
{
    p->watch = (struct hub_watch){.user = p, .goes_on = goes_on, .says = say, .moves = move};
    interrupt_begin();
}

void watching_end(void)
{
    progress_end();
    interrupt_end();
}

/* ---- What options and the environment say ----------------------------------------------- */

bool is_offline(const struct options *o)
{
    static const char *const words[] = {"1", "ON", "YES", "TRUE"}; /* of Hugging Face's programs */
    const char *hub = environment("HF_HUB_OFFLINE");
    bool is_offline = opt_is_set(o, OPT_OFFLINE);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_offline |= strcasecmp(hub, words[i]) == 0;
    return is_offline;
}

/* The file that Hugging Face's own programs keep the token in. */
static void add_token_file(struct buf *out)
{
    const char *file = environment("HF_TOKEN_PATH"), *home = environment("HF_HOME");
    if (file[0]) {
        buf_add_text(out, file);
    } else if (home[0]) {
        buf_printf(out, "%s/token", home);
    } else {
        home_folder("XDG_CACHE_HOME", ".cache", out);
        if (out->length) buf_add_text(out, "/huggingface/token");
    }
}

static int read_token(struct pulling *p, const struct options *o, struct carat_error *err)
{
    enum { TOKEN_MAX = 1024 };
    struct buf file = {0}, text = {0};
    const char *given = opt_is_set(o, OPT_TOKEN) ? opt_text(o, OPT_TOKEN) : environment("HF_TOKEN");
    buf_add_text(&text, given);
    if (!given[0]) {
        add_token_file(&file);
        struct carat_error ignored;
        bool is_there = file.length && strcmp(buf_text(&file), "-") != 0;
        if (is_there && file_read_some(buf_text(&file), TOKEN_MAX, &text, &ignored) != CARAT_OK)
            buf_clear(&text);
    }
    const char *at = buf_text(&text);
    at += strspn(at, " \t\r\n");
    size_t n = strcspn(at, " \t\r\n");
    bool is_good = n <= TOKEN_MAX;
    for (size_t i = 0; i < n && is_good; i++) is_good = at[i] > ' ' && at[i] <= '~';
    is_good = is_good && at[n + strspn(at + n, " \t\r\n")] == '\0';
    if (is_good) buf_add(&p->token, at, n);
    buf_deinit(&file);
    buf_deinit(&text);
    if (is_good) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "the token of Hugging Face has characters that no token has");
    err_hint(err, "see --token, $HF_TOKEN and the file $HF_TOKEN_PATH");
    return CARAT_EUSAGE;
}

static int choose_endpoint(struct pulling *p, const struct options *o, const struct hub_name *name,
                           struct carat_error *err)
{
    struct url url;
    const char *given = opt_is_set(o, OPT_ENDPOINT) ? opt_text(o, OPT_ENDPOINT)
                        : name->kind == HUB_HF      ? environment("HF_ENDPOINT")
                                                    : "";
    buf_add_text(&p->endpoint, given);
    if (!given[0]) return CARAT_OK;
    bool is_url = url_read(given, &url) && !strpbrk(given, "?#");
    if (is_url && (url.is_https || url_is_loopback(&url))) return CARAT_OK;
    struct buf shown = {0};
    url_add_shown(&shown, given);
    err_set(err, CARAT_EUSAGE, "--endpoint: https://HOST expected, %.200s found", buf_text(&shown));
    err_hint(err, "plain http is for this machine alone (http://127.0.0.1:PORT); $HF_ENDPOINT may "
                  "be what is wrong");
    buf_deinit(&shown);
    return CARAT_EUSAGE;
}

static int read_settings(struct pulling *p, const struct options *o, const struct hub_name *name,
                         struct carat_error *err)
{
    const char *bundle = environment("CURL_CA_BUNDLE");
    if (opt_is_set(o, OPT_DIR))
        buf_add_text(&p->folder, opt_text(o, OPT_DIR));
    else
        TRY(models_own_store(&p->folder, err));
    TRY(read_token(p, o, err));
    TRY(choose_endpoint(p, o, name, err));
    buf_add_text(&p->ca_file, bundle[0] ? bundle : environment("SSL_CERT_FILE"));
    buf_add_text(&p->ca_folder, environment("SSL_CERT_DIR"));
    bool failed = p->folder.failed || p->token.failed || p->endpoint.failed || p->ca_file.failed ||
                  p->ca_folder.failed;
    return failed ? err_no_memory(err, "settings", 0) : CARAT_OK;
}

/* ---- The download ----------------------------------------------------------------------- */

/* The models of a repository of which none was chosen. */
static void list_models(const struct pulling *p)
{
    const struct hub_name *name = &p->pull.name;
    const struct hub_files *files = &p->pull.files;
    for (size_t i = 0; i < files->n && i < 100; i++) {
        const char *path = files->at[i].path;
        char tag[HUB_TAG_MAX], size[SIZE_TEXT_MAX];
        struct buf shown = {0}, line = {0};
        bool takes_tag = hub_tag_is_own(files, i, 0);
        buf_printf(&shown, "hf:%s/%s%s%s", name->owner, name->repository, takes_tag ? ":" : "/",
                   takes_tag ? hub_tag_of_path(path, tag) : path);
        add_escaped(&line, buf_text(&shown), shown.length, false);
        err_printf("  %-56s %10s  ", buf_text(&line), size_text(files->at[i].size, size));
        buf_clear(&line);
        add_escaped(&line, path, strlen(path), false);
        err_printf("%s\n", buf_text(&line));
        buf_deinit(&shown);
        buf_deinit(&line);
    }
}

int pulling_open(struct pulling *p, const struct options *o, const struct hub_name *name,
                 struct carat_error *err)
{
    *p = (struct pulling){0};
    watching_begin(p);
    p->watch.retries = (int)opt_int(o, OPT_RETRIES);
    struct buf shown = {0};
    hub_name_add(name, &shown);
    int status = CARAT_OK;
    if (is_offline(o)) {
        status = err_set(err, CARAT_ENETWORK,
                         "%.300s: is not on this machine, and --offline "
                         "forbids downloading it",
                         buf_text(&shown));
        err_hint(err, "leave --offline out (HF_HUB_OFFLINE=1 and CARAT_OFFLINE=1 mean it too)");
    }
    buf_deinit(&shown);
    if (status == CARAT_OK) status = read_settings(p, o, name, err);
    if (status != CARAT_OK) return status;
    struct pull_options how = {.folder = buf_text(&p->folder),
                               .endpoint = buf_text(&p->endpoint),
                               .token = buf_text(&p->token),
                               .user_agent = "carat/" CARAT_VERSION,
                               .ca_file = buf_text(&p->ca_file),
                               .ca_folder = buf_text(&p->ca_folder),
                               .stall_s = (int)opt_int(o, OPT_STALL),
                               .connections = (int)opt_int(o, OPT_JOBS),
                               .watch = &p->watch};
    progress("asking the server", 0, 0);
    status = pull_open(&p->pull, name, &how, err);
    progress_end();
    if (status == CARAT_EUSAGE && p->pull.files.n) {
        list_models(p);
        err_hint(err, "choose one of the models above");
    }
    return status;
}

int pulling_run(struct pulling *p, bool verifies, struct buf *path, struct carat_error *err)
{
    int status = pull_run(&p->pull, verifies, err);
    progress_end();
    if (status == CARAT_OK) pull_add_path(&p->pull, 0, path);
    if (path->failed) return err_no_memory(err, "path", path->length);
    return status;
}

int pulling_report(const struct pulling *p, const struct carat_error *err)
{
    if (err->code != CARAT_EBUSY || !interrupt_wanted()) return report(err);
    struct buf name = {0};
    hub_name_add(&p->pull.name, &name);
    if (name.length)
        note("stopped; what is there stays, and `carat pull %s` goes on with it", buf_text(&name));
    buf_deinit(&name);
    return EXIT_INTERRUPTED;
}

void pulling_close(struct pulling *p)
{
    watching_end();
    pull_close(&p->pull);
    buf_deinit(&p->folder);
    buf_deinit(&p->token);
    buf_deinit(&p->endpoint);
    buf_deinit(&p->ca_file);
    buf_deinit(&p->ca_folder);
}
