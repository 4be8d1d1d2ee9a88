/* SPDX-License-Identifier: MIT */
/*
 * Edit distance over short names. Pure; any thread. Start reading at mr__suggest_name().
 */
#include "base/suggest.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = 40 }; /* longer than any name we suggest */

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein's distance with swaps of neighbours, because `dorp` is one
 * slip and not two. */
unsigned mr__suggest_distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned d[3][WORD_MAX + 1];

    if (na > WORD_MAX || nb > WORD_MAX) {
        return SUGGEST_FAR;
    }
    for (unsigned j = 0; j <= nb; j++) {
        d[0][j] = j;
    }
    for (unsigned i = 1; i <= na; i++) {
        unsigned *row = d[i % 3], *above = d[(i + 2) % 3], *above2 = d[(i + 1) % 3];

        row[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            unsigned change = lower(a[i - 1]) != lower(b[j - 1]);

            row[j] = least(above[j] + 1, row[j - 1] + 1);
            row[j] = least(row[j], above[j - 1] + change);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1])) {
                row[j] = least(row[j], above2[j - 2] + 1);
            }
        }
    }
    return d[na % 3][nb];
}

/* `warning` for warn, `reg` for register: one begins with the other. */
static bool is_prefix(const char *a, size_t na, const char *b, size_t nb)
{
    size_t n = na < nb ? na : nb;

    return n >= 3 && strncasecmp(a, b, n) == 0;
}

const char *mr__suggest_name(const char *word, size_t n, const char *const *names)
{
    const char *best = NULL;
    unsigned best_distance = SUGGEST_FAR;

    for (; *names; names++) {
        size_t len = strlen(*names);
        unsigned distance = mr__suggest_distance(word, n, *names, len);
        unsigned allowed = len < 6 ? (len < 3 ? 1 : 2) : ((unsigned)len + 1) / 3;

        if (distance > allowed && is_prefix(word, n, *names, len)) {
            distance = allowed; /* behind every slip of the pen, before nothing */
        }

        if (distance <= allowed && distance < best_distance && distance < len) {
            best = *names;
            best_distance = distance;
        }
    }
    return best;
}
