/* carat doctor: this machine, this build, and whether an answer comes out. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/allowance.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/topology.h"
#include "carat_inspect.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/devices.h"
#include "cli/files.h"
#include "cli/generate.h"
#include "cli/models.h"
#include "cli/session.h"
#include "cli/memory_text.h"
#include "cli/setup.h"
#include "cli/terminal.h"
#include "cli/version.h"

enum check_result { CHECK_PASSED, CHECK_FAILED, CHECK_SKIPPED };

struct check {
    enum check_result result;
    char text[600];
    struct buf setup; /* what it computed on */
};

static const char *result_name(enum check_result result)
{
    return result == CHECK_PASSED ? "passed" : result == CHECK_FAILED ? "failed" : "skipped";
}

static bool keep_going(void *user, enum carat_part_kind kind, const char *text, size_t length)
{
    (void)user;
    (void)kind;
    (void)text;
    (void)length;
    return true;
}

/* Next to a model demo.gguf lies demo.check: the question, a newline, the greedy answer. */
static int read_expectation(const struct session *s, struct buf *out, struct carat_error *err)
{
    struct buf path = {0};
    size_t n = s->path.length;
    if (n > 5 && strcmp(buf_text(&s->path) + n - 5, ".gguf") == 0) n -= 5;
    buf_add(&path, buf_text(&s->path), n);
    buf_add_text(&path, ".check");
    int status = file_read(buf_text(&path), out, err);
    buf_deinit(&path);
    return status;
}

static int ask(struct session *s, const struct options *o, const char *question, size_t length,
               size_t answer_bytes, struct answer *answer, struct carat_error *err)
{
    struct conversation c = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    struct generation *g = mem_alloc(1, sizeof *g);
    if (!g) return err_no_memory(err, "options", sizeof *g);
    struct carat_engine_options options = engine_options(o);
    if (options.n_ctx == 0) options.n_ctx = 512;
    g->sampling = (struct carat_sampling){.top_p = 1, .repeat_penalty = 1};
    g->max_tokens = (int32_t)answer_bytes + 1; /* a token is at least a byte */
    int status = conversation_open(&c, err);
    if (status == CARAT_OK) status = conversation_add(&c, "user", question, length, err);
    if (status == CARAT_OK)
        status = carat_chat_tokenize(s->model, conversation_request(&c), &ids, &n, err);
    if (status == CARAT_OK) status = session_start(s, &options, err);
    if (status == CARAT_OK) status = generate(s, g, ids, n, keep_going, NULL, answer, err);
    carat_free(ids);
    conversation_close(&c);
    mem_free(g);
    return status;
}

static void self_test(const struct options *o, struct check *check)
{
    struct carat_error err = {0};
    struct session s = {.is_auto = strcmp(opt_text(o, OPT_BACKEND), "auto") == 0,
                        .is_silent = true};
    struct buf expected = {0};
    struct answer answer = {0};
    *check = (struct check){.result = CHECK_SKIPPED};
    if (model_find("demo", &s.path, &err) != CARAT_OK ||
        read_expectation(&s, &expected, &err) != CARAT_OK) {
        snprintf(check->text, sizeof check->text, "%s", err.message);
        goto done;
    }
    size_t question = strcspn(buf_text(&expected), "\n");
    const char *wanted = buf_text(&expected) + question + (expected.length > question);
    size_t wanted_bytes = strlen(wanted);
    if (wanted_bytes > 0 && wanted[wanted_bytes - 1] == '\n') wanted_bytes--;
    check->result = CHECK_FAILED;
    int status = carat_model_open(&s.model, buf_text(&s.path), &err);
    if (status == CARAT_OK)
        status = ask(&s, o, buf_text(&expected), question, wanted_bytes, &answer, &err);
    if (s.engine) {
        session_add_setup(&s, &check->setup);
        buf_add_text(&check->setup, ", ");
        memory_add_line(&check->setup, carat_engine_memory(s.engine));
    }
    if (status != CARAT_OK) {
        snprintf(check->text, sizeof check->text, "%s", err.message);
    } else if (answer.text.length < wanted_bytes ||
               memcmp(buf_text(&answer.text), wanted, wanted_bytes) != 0) {
        snprintf(check->text, sizeof check->text, "\"%.200s\" expected, \"%.200s\" answered",
                 wanted, buf_text(&answer.text));
    } else {
        check->result = CHECK_PASSED;
        answer_stats(&answer, check->text, sizeof check->text);
    }
done:
    answer_deinit(&answer);
    buf_deinit(&expected);
    session_close(&s);
}

struct facts {
    char cpu[128], features[256];
    struct utsname system;
    struct memory_allowance memory;
    struct thread_allowance threads;
    struct topology topology;
    struct buf backends, isas;
    const char *isa;                    /* that computes on the CPU */
    char *devices;                      /* JSON */
    const char *graphs, *cublas, *fuse; /* "auto", "on" or "off", as the options say */
    struct check check;
};

/* "MemAvailable", "memory.max of /sys/fs/cgroup/box". */
static const char *limit_text(const struct allowance_source *s, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", s->name, s->path[0] ? " of " : "", s->path);
    return out;
}

static void print_text(const struct facts *f)
{
    struct carat_error err = {0};
    out_printf("carat      %s, commit %s, %s build, libraries: %s\n", CARAT_VERSION,
               version_commit(), version_build_type(), version_libraries());
    out_printf("system     %s %s %s\n", f->system.sysname, f->system.release, f->system.machine);
    char limit[600];
    out_printf("processor  %s, %d cores, %s\n", f->cpu, f->topology.n_cores,
               f->features[0] ? f->features : "no vector extensions");
    out_printf("isa        %s\n", buf_text(&f->isas));
    out_printf("cores      %d (fast: %d; threads in all: %d), memory nodes: %d\n",
               f->topology.n_cores, f->topology.n_fast_cores, f->topology.n_processors,
               f->topology.n_nodes);
    out_printf("threads    %d, by %s\n", f->threads.count,
               limit_text(&f->threads.source, limit, sizeof limit));
    out_printf("memory     %.1f GiB, %.2f GiB available, by %s\n",
               (double)os_memory_total() / (1 << 30), (double)f->memory.available / (1 << 30),
               limit_text(&f->memory.source, limit, sizeof limit));
    out_printf("backends   %s\n", buf_text(&f->backends));
    out_text("devices    ");
    if (print_devices("           ", &err) != CARAT_OK) out_printf("%s\n", err.message);
    out_printf("gpu        graphs %s, cublas %s, fuse %s\n", f->graphs, f->cublas, f->fuse);
    out_printf("self-test  %s: %s%s%s\n", result_name(f->check.result), f->check.text,
               f->check.setup.length ? ", " : "", buf_text(&f->check.setup));
}

/* clang-format off */
static void print_facts_json(const struct facts *f)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    char limit[600];
    const struct { const char *key, *value; } texts[] = {
        {"version", CARAT_VERSION},          {"commit", version_commit()},
        {"build_type", version_build_type()}, {"libraries", version_libraries()},
        {"system", f->system.sysname},       {"kernel", f->system.release},
        {"machine", f->system.machine},      {"cpu", f->cpu},
        {"cpu_features", f->features},       {"self_test", result_name(f->check.result)},
        {"self_test_text", f->check.text},   {"self_test_setup", buf_text(&f->check.setup)},
        {"graphs", f->graphs},               {"cublas", f->cublas},
        {"fuse", f->fuse},                   {"isa", f->isa},
    };
    json_begin_object(&j);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_key_string(&j, texts[i].key, texts[i].value);
    }
    json_key_int(&j, "cores", f->topology.n_cores);
    json_key_int(&j, "cores_fast", f->topology.n_fast_cores);
    json_key_int(&j, "processors", f->topology.n_processors);
    json_key_int(&j, "memory_nodes", f->topology.n_nodes);
    json_key_int(&j, "memory_total", (int64_t)os_memory_total());
    json_key_int(&j, "memory_available", (int64_t)f->memory.available);
    json_key_string(&j, "memory_limit", limit_text(&f->memory.source, limit, sizeof limit));
    json_key_int(&j, "threads", f->threads.count);
    json_key_string(&j, "threads_limit", limit_text(&f->threads.source, limit, sizeof limit));
    json_key(&j, "backends");
    backends_add_json(&j);
    json_key(&j, "isas");
    isas_add_json(&j);
    json_key(&j, "devices");
    buf_add_text(&b, f->devices); /* already JSON */
    json_end_object(&j);
    out_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
}
/* clang-format on */

int command_doctor(const struct options *o)
{
    struct carat_error err = {0};
    struct facts f = {0};
    int status = no_more_arguments(o, 0, &err);
    if (status == CARAT_OK) status = carat_devices_json(&f.devices, &err);
    if (status != CARAT_OK) return report(&err);
    f.graphs = opt_text(o, OPT_GRAPHS);
    f.cublas = opt_text(o, OPT_CUBLAS);
    f.fuse = opt_text(o, OPT_FUSE);
    uname(&f.system);
    f.memory = allowance_memory("");
    f.threads = allowance_threads("", 0);
    topology_read(&f.topology, "", NULL);
    os_cpu_name(f.cpu, sizeof f.cpu);
    os_cpu_features(f.features, sizeof f.features);
    backends_add_line(&f.backends);
    isas_add_line(&f.isas, opt_text(o, OPT_ISA));
    f.isa = isa_in_use(opt_text(o, OPT_ISA));
    self_test(o, &f.check);
    if (opt_is_set(o, OPT_JSON))
        print_facts_json(&f);
    else
        print_text(&f);
    buf_deinit(&f.backends);
    buf_deinit(&f.isas);
    buf_deinit(&f.check.setup);
    carat_free(f.devices);
    return f.check.result == CHECK_FAILED ? 1 : 0;
}
