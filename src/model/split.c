#include "model/split.h"

#include <string.h>

struct split split_in_order(const struct gemma_config *c, const int32_t *n_layers, int32_t n_sites)
{
    struct split s = {{0}, {0}};
    int32_t end = 0;
    for (int32_t site = 0; site < n_sites; site++) {
        int32_t begin = end, left = c->n_layer - begin;
        end += n_layers[site] < left && site < n_sites - 1 ? n_layers[site] : left;
        for (int32_t l = begin; l < end; l++) s.layer[l] = (uint8_t)site;
    }
    memcpy(s.experts, s.layer, sizeof s.experts);
    return s;
}

/* The first layer whose keys others read, or the number of layers. */
static int32_t first_donor(const struct gemma_config *c)
{
    int32_t donor = c->n_layer;
    for (int32_t l = c->n_kv_layer; l < c->n_layer; l++)
        if (c->layer[l].kv_layer < donor) donor = c->layer[l].kv_layer;
    return donor;
}

struct split split_with_rest(const struct gemma_config *c, int32_t n, int32_t n_experts)
{
    struct split s = {{0}, {0}};
    int32_t donor = first_donor(c), n_layer = c->n_layer;
    if (n > n_layer) n = n_layer;
    bool are_last = n_layer - n <= donor;
    int32_t begin = are_last ? n_layer - n : 0;
    int32_t end = are_last ? n_layer : n < donor ? n : donor;
    for (int32_t l = 0; l < n_layer; l++) {
        s.layer[l] = l < begin || l >= end;
        s.experts[l] = s.layer[l] || l < n_experts;
    }
    return s;
}

bool split_is_sound(const struct gemma_config *c, const struct split *s)
{
    for (int32_t l = 0; l < c->n_layer; l++)
        if (s->layer[l] != s->layer[c->layer[l].kv_layer]) return false;
    return true;
}

int32_t split_count_layers(const struct gemma_config *c, const struct split *s, int32_t site)
{
    int32_t n = 0;
    for (int32_t l = 0; l < c->n_layer; l++) n += s->layer[l] == site;
    return n;
}

bool split_uses(const struct gemma_config *c, const struct split *s, int32_t site)
{
    for (int32_t l = 0; l < c->n_layer; l++)
        if (s->layer[l] == site || (c->n_expert && s->experts[l] == site)) return true;
    return false;
}
