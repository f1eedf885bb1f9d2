/* Sorted indexes of names, for look-ups and to find duplicates. Heap sort: in place, no
 * recursion, and no input is slow. (A hash table would need a secret seed for that.) */
#include "gguf/internal.h"

#include <string.h>

static void sift_down(uint32_t *order, size_t root, size_t n, name_at_fn name_at, const void *user)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= n) return;
        const char *larger = name_at(user, order[child]);
        if (child + 1 < n) {
            const char *right = name_at(user, order[child + 1]);
            if (strcmp(right, larger) > 0) {
                larger = right;
                child++;
            }
        }
        if (strcmp(name_at(user, order[root]), larger) >= 0) return;
        uint32_t moved = order[root];
        order[root] = order[child];
        order[child] = moved;
        root = child;
    }
}

void order_by_name(uint32_t *order, size_t n, name_at_fn name_at, const void *user)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(order, i, n, name_at, user);
    for (size_t end = n; end > 1; end--) {
        uint32_t largest = order[0];
        order[0] = order[end - 1];
        order[end - 1] = largest;
        sift_down(order, 0, end - 1, name_at, user);
    }
}

size_t order_find(const uint32_t *order, size_t n, name_at_fn name_at, const void *user,
                  const char *name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int sign = strcmp(name_at(user, order[middle]), name);
        if (sign == 0) return middle;
        if (sign < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return n;
}
