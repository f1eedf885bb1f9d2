/* Routes that tell what is known, at once: health, models, metrics, the page. */
#ifndef SERVER_INQUIRIES_H
#define SERVER_INQUIRIES_H

#include "server/service.h"

/* The call's route is neither ANSWER, TEXT, DRAIN nor ABSENT. */
void inquiries_answer(struct service *s, struct call *c);

#endif
