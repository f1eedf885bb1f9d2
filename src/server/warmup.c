#include "server/warmup.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

_Static_assert((int)REPLICAS_AT_ONCE >= (int)AFFINITY_ENGINES_MAX, "a job for each engine");
enum { LOOK_US = 500, PROMPT_TOKENS_MAX = 16, ANSWER_TOKENS = 2 };

/* Whether the job is done. */
static bool look(struct replicas *r, struct job *job, struct job_event *done)
{
    struct job_event events[4];
    size_t n = replicas_take(r, job, events, 4);
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == JOB_DONE) {
            *done = events[i];
            return true;
        }
    return false;
}

static int end_job(struct replicas *r, struct job *job, struct carat_error *err)
{
    struct job_event done;
    int status = CARAT_OK;
    while (!look(r, job, &done)) usleep(LOOK_US);
    if (done.finish == CARAT_FINISH_ERROR && done.error) {
        *err = *done.error;
        status = done.error->code;
    }
    job_deinit(job);
    return status;
}

/* All at once, so that each engine gets one. */
static int run_jobs(struct replicas *r, struct job *jobs, size_t n, struct carat_error *err)
{
    struct job *all[REPLICAS_AT_ONCE] = {0};
    for (size_t i = 0; i < n; i++) all[i] = &jobs[i];
    TRY(replicas_submit(r, all, n, err));
    int status = CARAT_OK;
    for (size_t i = 0; i < n; i++) {
        struct carat_error other;
        int ended = end_job(r, &jobs[i], &other);
        if (status == CARAT_OK && ended != CARAT_OK) {
            *err = other;
            status = ended;
        }
    }
    return status;
}

int warmup_run(struct replicas *r, const carat_model *model, size_t n_engines,
               struct carat_error *err)
{
    static const char text[] = "A few words to begin with, as long as a short question.";
    int32_t *ids;
    size_t n;
    TRY(carat_tokenize(model, text, strlen(text), CARAT_SPECIAL_NONE, true, &ids, &n, err));
    if (n > PROMPT_TOKENS_MAX) n = PROMPT_TOKENS_MAX; /* the shortest context has room for them */
    struct job *jobs = mem_alloc(n_engines, sizeof *jobs);
    int status = jobs ? CARAT_OK : err_no_memory(err, "engines", n_engines * sizeof *jobs);
    for (size_t i = 0; jobs && i < n_engines; i++)
        jobs[i].request = (struct carat_request){.size = sizeof jobs[i].request,
                                                 .prompt = ids,
                                                 .n_prompt = n,
                                                 .max_tokens = ANSWER_TOKENS,
                                                 .ignore_stop = true,
                                                 .no_cache = true};
    if (jobs) status = run_jobs(r, jobs, n_engines, err);
    mem_free(jobs);
    carat_free(ids);
    return status;
}
