/* Errors as each API says them: a status of HTTP, a type, a code, and the one sentence that the
 * command line would print. */
#ifndef API_API_ERROR_H
#define API_API_ERROR_H

#include "api/ask.h"
#include "base/buf.h"

enum api_family { FAMILY_OPENAI, FAMILY_ANTHROPIC, FAMILY_OLLAMA };
enum api_family api_family(enum api api);

struct api_error {
    int status;              /* 400 */
    const char *type;        /* "invalid_request_error" */
    const char *code;        /* "context_length_exceeded"; NULL: none */
    char param[160];         /* the member, "messages[0].role"; "": none */
    char message[800];       /* with the hint */
    int32_t n_prompt, n_ctx; /* of context_length_exceeded; else 0 */
    int retry_after;         /* seconds; 0: no such header */
};

/* What `err` means to a client. Never shows paths or addresses of this machine. */
struct api_error api_error_from(const struct carat_error *err);
/* A prompt that does not fit, as agents recognise it. */
struct api_error api_error_context(int32_t n_prompt, int32_t n_ctx);
/* One that no carat_error stands for: 404, 405, 413, 501, 503 ... `type` and `code` follow from the
 * status unless `code` says more. */
struct api_error api_error_make(int status, const char *code, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

/* The body of the reply, one JSON object and a newline. */
void api_error_body(const struct api_error *error, enum api_family family, const char *request_id,
                    struct buf *out);

#endif
