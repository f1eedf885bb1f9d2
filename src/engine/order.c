#include "engine/order.h"

#include <assert.h>
#include <string.h>

#include "engine/dry.h"

static_assert(sizeof((struct carat_sampling *)0)->samplers == SAMPLERS_SIZE, "one size");

bool has_plain_penalties(const struct carat_sampling *p)
{
    return p->repeat_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static bool is_on(char sampler, const struct carat_sampling *p)
{
    switch (sampler) {
    case 'e': return has_plain_penalties(p);
    case 'd': return dry_is_on(p);
    case 's': return p->top_n_sigma > 0.0f;
    case 'k': return p->top_k > 0;
    case 'y': return p->typical_p < 1.0f;
    case 't': return p->temperature != 1.0f || p->dynatemp_range > 0.0f;
    case 'p': return p->top_p < 1.0f;
    case 'm': return p->min_p > 0.0f;
    default: return p->xtc_probability > 0.0f;
    }
}

static void switch_off(char sampler, struct carat_sampling *p)
{
    switch (sampler) {
    case 'e':
        p->repeat_penalty = 1.0f;
        p->presence_penalty = p->frequency_penalty = 0.0f;
        break;
    case 'd': p->dry_multiplier = 0.0f; break;
    case 's': p->top_n_sigma = 0.0f; break;
    case 'k': p->top_k = 0; break;
    case 'y': p->typical_p = 1.0f; break;
    case 't':
        p->temperature = 1.0f;
        p->dynatemp_range = 0.0f;
        break;
    case 'p': p->top_p = 1.0f; break;
    case 'm': p->min_p = 0.0f; break;
    default: p->xtc_probability = 0.0f; break;
    }
}

/* A temperature of 0 and Mirostat take the place of all that drops tokens. */
static void drop_idle(struct carat_sampling *p, char *letters)
{
    bool is_greedy = p->temperature == 0.0f && (p->mirostat || p->dynatemp_range == 0.0f);
    if (p->xtc_threshold > 0.5f) p->xtc_probability = 0.0f;
    if (is_greedy) p->mirostat = 0;
    if (!is_greedy && !p->mirostat) return;
    for (const char *c = "skypmx"; *c; c++) switch_off(*c, p);
    p->dynatemp_range = 0.0f;
    if (is_greedy) p->top_k = 1;
    const char *dry = strchr(letters, 'd'), *penalties = strchr(letters, 'e');
    bool is_dry_first = dry && penalties && dry < penalties;
    memcpy(letters, is_dry_first ? "dekt" : "edkt", sizeof "edkt");
}

/* A fixed temperature neither moves logits past each other nor changes how many standard deviations
 * they are apart. So what looks at the row can come before it. */
static void delay_temperature(char *letters)
{
    char *c = strchr(letters, 't');
    for (; c && (c[1] == 's' || c[1] == 'k'); c++) {
        c[0] = c[1];
        c[1] = 't';
    }
}

/* Whether the letters are some of "tpm", in this order. */
static bool is_plain(const char *letters)
{
    for (const char *c = "tpm"; *c; c++)
        if (*letters == *c) letters++;
    return !*letters;
}

void order_make(struct order *o, struct carat_sampling *p)
{
    char letters[SAMPLERS_SIZE] = CARAT_SAMPLERS;
    size_t n = 0;
    if (p->samplers[0]) memcpy(letters, p->samplers, sizeof letters);
    for (const char *c = CARAT_SAMPLERS; *c; c++)
        if (!strchr(letters, *c)) switch_off(*c, p);
    drop_idle(p, letters);
    for (const char *c = letters; *c; c++)
        if (*c != '-' && is_on(*c, p)) letters[n++] = *c;
    letters[n] = '\0';
    if (p->dynatemp_range == 0.0f) delay_temperature(letters);

    const char *next = letters;
    *o = (struct order){.has_floor = false};
    for (size_t i = 0; *next == 'e' || *next == 'd'; i++) o->row[i] = *next++;
    o->has_floor = *next == 's';
    next += o->has_floor;
    o->has_top_k = *next == 'k';
    next += o->has_top_k;
    memcpy(o->rest, next, strlen(next) + 1);
    o->is_plain = !o->has_floor && !p->mirostat && p->dynatemp_range == 0.0f && is_plain(next);
}
