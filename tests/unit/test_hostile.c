/* Malformed model files against the program itself: each must end with the right exit status
 * and a sentence that names the place, on standard error and nowhere else, without a signal, in
 * bounded time and memory.
 *
 *     test_hostile [PART-OF-A-CASE-NAME]
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "support/hostile.h"

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED true
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED false
#endif

/* Sanitizers slow the program down and keep freed memory: then only a bound on time holds. */
static const double seconds_max = IS_SANITIZED ? 10.0 : 1.0;
static const long kilobytes_max = 64 * 1024;

struct outcome {
    int status; /* exit status, or -signal */
    double seconds;
    long kilobytes;
    char out[4096], errors[4096];
};

static void read_file(const struct scratch *s, const char *name, char *text, size_t size)
{
    char path[512];
    FILE *f = fopen(scratch_file(s, name, path), "rb");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
}

static void redirect(const struct scratch *s, const char *name, int fd)
{
    char path[512];
    int file = open(scratch_file(s, name, path), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0) _exit(99);
    close(file);
}

/* Starts the program with its output in the scratch folder. */
static pid_t start(const struct scratch *s, const char *const *arguments)
{
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    redirect(s, "stdout", STDOUT_FILENO);
    redirect(s, "stderr", STDERR_FILENO);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    struct rlimit cpu = {.rlim_cur = 20, .rlim_max = 20};
    setrlimit(RLIMIT_CPU, &cpu);
    execv(CARAT_PROGRAM, (char *const *)(uintptr_t)arguments);
    _exit(99);
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Seconds of processor time: other work on the machine does not count. */
static void finish(const struct scratch *s, pid_t child, struct outcome *o)
{
    int status = 0;
    struct rusage usage = {0};
    wait4(child, &status, 0, &usage);
    o->seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    o->kilobytes = usage.ru_maxrss;
    o->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    read_file(s, "stdout", o->out, sizeof o->out);
    read_file(s, "stderr", o->errors, sizeof o->errors);
}

static void run(const struct scratch *s, const char *const *arguments, struct outcome *o)
{
    finish(s, start(s, arguments), o);
}

/* C0 but the newline, DEL, and C1 in UTF-8. */
static bool has_controls(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if ((*c < 0x20 && *c != '\n') || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return true;
    return false;
}

/* What is wrong with the outcome, or NULL. The text of an answer is not checked, as the weights
 * are random: it may have a tab in it. */
static const char *judge(const struct hostile_case *c, const struct outcome *o, int expected,
                         bool answers)
{
    bool is_answer = answers && o->status == 0;
    if (o->status < 0) return "died of a signal";
    if (o->status != expected) return "has another exit status";
    if (o->seconds > seconds_max) return "takes too long";
    if (!IS_SANITIZED && o->kilobytes > kilobytes_max) return "takes too much memory";
    if (has_controls(o->errors) || (!is_answer && has_controls(o->out)))
        return "prints control characters";
    if (expected == 0) return NULL;
    if (expected == 3 && o->out[0]) return "prints errors on standard output";
    if (!o->errors[0]) return "says nothing";
    if (c->expected && !strstr(o->errors, c->expected)) return "does not name the place";
    return NULL;
}

/* Runs `carat run`, or one of the commands that describe a file: these may succeed although the
 * model cannot be run. Returns whether all is well. */
static bool check_command(const struct hostile_case *c, const struct scratch *s,
                          const char *const *arguments, bool may_succeed)
{
    struct outcome o;
    int expected = c->exit_status ? c->exit_status : c->expected ? 3 : 0;
    run(s, arguments, &o);
    if (may_succeed && (o.status == 0 || o.status == 3)) expected = o.status;
    const char *problem = judge(c, &o, expected, !may_succeed);
    if (!problem) return true;
    printf("FAILED %s: carat %s %s: status %d (%d expected), %.2f s, %ld kB\n"
           "    expected: %s\n    errors: %.600s\n",
           c->name, arguments[1], problem, o.status, expected, o.seconds, o.kilobytes,
           c->expected ? c->expected : "(legal)", o.errors);
    return false;
}

static bool check(const struct hostile_case *c)
{
    struct scratch s;
    char path[512];
    scratch_open(&s);
    hostile_make(c, &s, path);
    bool ok = check_command(c, &s,
                            (const char *const[]){"carat", "run", path, "hi", "--quiet",
                                                  "--max-tokens", "2", "--seed", "1", NULL},
                            false);
    ok &= check_command(c, &s, (const char *const[]){"carat", "show", path, NULL}, true);
    ok &= check_command(c, &s, (const char *const[]){"carat", "show", path, "--json", NULL}, true);
    scratch_close(&s);
    return ok;
}

/* A file cut short while the program generates from it: a message instead of a silent death. */
static bool check_cut_while_mapped(void)
{
    struct scratch s;
    char path[512];
    struct outcome o = {0};
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_E2B);
    struct gemma_layout layout = gemma_layout_plain(FORMAT_F32);
    struct gguf_writer w = {0};
    shape.n_ctx = 1 << 17;
    scratch_open(&s);
    tiny_model_put_shape(&w, &shape, &layout, 3);
    int status = gguf_save(&w, scratch_file(&s, "model.gguf", path), NULL);
    gguf_writer_deinit(&w);
    pid_t child = start(&s, (const char *const[]){"carat", "run", path, "hi", "--ignore-eos",
                                                  "--max-tokens", "100000", "--quiet", NULL});
    /* It is generating once it has written something. */
    for (int i = 0; i < 12000 && !o.out[0]; i++) {
        usleep(10000);
        read_file(&s, "stdout", o.out, sizeof o.out);
    }
    status |= truncate(path, 0);
    finish(&s, child, &o);
    bool ok = status == 0 && o.status == 3 && strstr(o.errors, "was cut short");
    if (!ok) printf("FAILED file cut while mapped: status %d\n    %.600s\n", o.status, o.errors);
    scratch_close(&s);
    return ok;
}

int main(int argc, char **argv)
{
    size_t n_run = 0, n_failed = 0;
    for (size_t i = 0; i < hostile_count(); i++) {
        const struct hostile_case *c = hostile_at(i);
        if (argc > 1 && !strstr(c->name, argv[1])) continue;
        n_run++;
        n_failed += !check(c);
    }
    if (argc == 1) {
        n_run++;
        n_failed += !check_cut_while_mapped();
    }
    printf("%zu malformed files, %zu failed%s\n", n_run, n_failed,
           IS_SANITIZED ? " (memory not measured: built with a sanitizer)" : "");
    return n_failed ? 1 : 0;
}
