/* A download as the options and the environment say, shown on the terminal: for `pull`, and for
 * commands that offer to pull a model. */
#ifndef CLI_PULLING_H
#define CLI_PULLING_H

#include "cli/options.h"
#include "hub/pull.h"
#include "hub/watch.h"

struct pulling {
    struct buf folder, token, ca_file, ca_folder, endpoint;
    struct hub_watch watch;
    struct pull pull;
    const char *file; /* that is loaded or checked now; borrowed */
    double begun_at;  /* when its first bytes came */
    uint64_t begun;   /* its bytes before that */
    int tenths;       /* of the file that were reported */
};

/* Whether nothing may be asked of a network. */
bool is_offline(const struct options *o);

/* Asks the registry what the name means. If no quantisation fits, the models that there are go to
 * standard error. From here on Ctrl-C only asks the download to stop; pulling_close ends that. */
int pulling_open(struct pulling *p, const struct options *o, const struct hub_name *name,
                 struct carat_error *err);

/* Loads it. Appends the path of the first file. */
int pulling_run(struct pulling *p, bool verifies, struct buf *path, struct carat_error *err);

/* Shows the check of a file in the same way, until watching_end. */
void watching_begin(struct pulling *p);
void watching_end(void);

/* Reports a failure; one by Ctrl-C says that the part stays. Returns the exit status. */
int pulling_report(const struct pulling *p, const struct carat_error *err);

void pulling_close(struct pulling *p);

#endif
