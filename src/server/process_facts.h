/* What Linux says about this process, for metrics. Read anew at each call. */
#ifndef SERVER_PROCESS_FACTS_H
#define SERVER_PROCESS_FACTS_H

struct process_facts { /* 0: could not be read */
    double resident_bytes, virtual_bytes;
    double cpu_seconds;
    double start_seconds; /* since 1970 */
    double open_files, open_files_max;
    double threads;
};
void process_facts_read(struct process_facts *out);

#endif
