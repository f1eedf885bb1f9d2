/* carat plan: the compiled program of one step. */
#include "carat_inspect.h"
#include "cli/command.h"
#include "cli/session.h"
#include "cli/terminal.h"

int command_plan(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    char *text = NULL;
    int64_t rows = opt_int(o, OPT_ROWS), outs = opt_int(o, OPT_OUTS);
    int status = CARAT_OK;
    if (outs > rows)
        status = err_set(&err, CARAT_EUSAGE, "plan: --outs %lld is more than --rows %lld",
                         (long long)outs, (long long)rows);
    if (status == CARAT_OK) status = session_open(&s, o, &err);
    if (status == CARAT_OK) status = no_more_arguments(o, s.next_argument, &err);
    struct carat_engine_options options = engine_options(o);
    if (options.chunk == 0 && rows > 512) options.chunk = (int32_t)rows;
    if (status == CARAT_OK)
        status = carat_plan_text(s.model, &options, (int32_t)rows, (int32_t)outs, &text, &err);
    if (status == CARAT_OK) out_text(text);
    carat_free(text);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
