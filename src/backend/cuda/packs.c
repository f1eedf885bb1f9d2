#include "backend/cuda/packs.h"

#include <string.h>

#include "backend/cuda/segments.h"
#include "base/assert.h"

struct pack_rule pack_rule_of(int32_t n_heads, int32_t head_dim, int32_t n_kv_heads,
                              enum share_kind kind)
{
    struct pack_rule rule = {0};
    if (kind == SHARE_OFF || head_dim != CASCADE_DIM) return rule;
    rule.rows = CASCADE_SLOTS * slot_rows_of(n_heads / n_kv_heads);
    rule.splits = splits_of(n_heads, head_dim, n_kv_heads, HEADS);
    rule.least = share_least_of(kind);
    return rule;
}

static int32_t segments_of_row(const struct pack_rule *rule, const struct step *step, int32_t row)
{
    return segments_of((step->position[row] + TILE_KEYS) / TILE_KEYS, rule->splits);
}

/* Writes to `member` the rows of row's group, from `row` on, that see as many segments as it does;
 * returns their number. */
static int32_t find_rows(const struct pack_rule *rule, const struct step *step, int32_t row,
                         int32_t *member)
{
    int32_t n = 0, n_segments = segments_of_row(rule, step, row);
    for (int32_t r = row; r < step->n_decode; r++)
        if (step->leader[r] == step->leader[row] && segments_of_row(rule, step, r) == n_segments)
            member[n++] = r;
    return n;
}

/* Packs of `n` rows, which are member[first] ...; returns their number. */
static int32_t cut_packs(const struct pack_rule *rule, int32_t first, int32_t n, int32_t shared,
                         struct pack *pack)
{
    int32_t n_packs = (n + rule->rows - 1) / rule->rows;
    for (int32_t i = 0; i < n_packs; i++) {
        int32_t begin = (int32_t)((int64_t)n * i / n_packs);
        int32_t end = (int32_t)((int64_t)n * (i + 1) / n_packs);
        pack[i] = (struct pack){first + begin, end - begin, shared / TILE_KEYS};
    }
    return n_packs;
}

/* Layers that compute only output rows number rows differently, unless the decode rows come first
 * there too. */
static bool are_outputs_first(const struct step *step)
{
    int32_t n = step->n_out < step->n_decode ? step->n_out : step->n_decode;
    for (int32_t r = 0; r < n; r++)
        if (step->out_row[r] != r) return false;
    return true;
}

int32_t packs_fill(const struct pack_rule *rule, const struct step *step, struct pack *pack,
                   int32_t *member, int32_t *is_packed)
{
    int32_t n_packs = 0, n_members = 0;
    memset(is_packed, 0, (size_t)step->n_token * sizeof *is_packed);
    if (!step->leader || rule->rows == 0 || !are_outputs_first(step)) return 0;
    for (int32_t row = 0; row < step->n_decode; row++) {
        int32_t shared = step->shared[row];
        carat_assert(shared % KV_PAGE == 0 && shared <= step->position[row] + 1);
        if (is_packed[row] || shared < rule->least.positions) continue;
        int32_t n = find_rows(rule, step, row, member + n_members);
        if (n < rule->least.rows) continue;
        n_packs += cut_packs(rule, n_members, n, shared, pack + n_packs);
        for (int32_t i = n_members; i < n_members + n; i++) is_packed[member[i]] = 1;
        n_members += n;
    }
    return n_packs;
}
