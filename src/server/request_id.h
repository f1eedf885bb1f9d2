/* x-request-id: the name of a request in its reply and in the log. */
#ifndef SERVER_REQUEST_ID_H
#define SERVER_REQUEST_ID_H

enum { REQUEST_ID_MAX = 65, REQUEST_ID_MADE = 25 }; /* bytes, with the NUL */

/* One of our own: [0-9a-f]{24}, random. */
void request_id_make(char out[REQUEST_ID_MADE]);
/* The client's, if it is [A-Za-z0-9._-]{1,64}; else `own`. `given` may be NULL. */
void request_id_choose(char out[REQUEST_ID_MAX], const char *given, const char *own);

#endif
