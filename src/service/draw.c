/* SPDX-License-Identifier: MIT */
/*
 * Random numbers without bias and ids that nobody has. Control thread. Start reading at
 * draw_id(): a space of any size, down to two ids, is used up exactly.
 */
#include "service/state.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

enum {
    /* In a space that is half full 64 draws in a row fail once in 10^19 times. */
    RANDOM_TRIES = 64,
    DIGITS_MAX = MR_OID_MAX,
};

struct id_space {
    const char *charset; /* NULL: words */
    uint32_t base, length;
    bool (*is_taken)(const struct service *s, const char *id, size_t n);
};

/* The kernel is asked for more than one number at once; what was given out is wiped. */
static int draw_bytes(struct service *s, void *out, size_t n)
{
    unsigned char *p = out;

    while (n > 0) {
        if (s->entropy_n == 0) {
            int rc = s->out.random(s->out.user, s->entropy, sizeof s->entropy);
            if (rc < 0) {
                return rc;
            }
            s->entropy_n = sizeof s->entropy;
        }
        size_t k = n < s->entropy_n ? n : s->entropy_n;
        unsigned char *from = s->entropy + s->entropy_n - k;
        memcpy(p, from, k);
        explicit_bzero(from, k);
        s->entropy_n -= k;
        p += k;
        n -= k;
    }
    return 0;
}

int mr__draw_below(struct service *s, uint64_t n, uint64_t *out)
{
    uint64_t mask = n - 1, v;

    for (unsigned shift = 1; shift < 64; shift *= 2) {
        mask |= mask >> shift;
    }
    do {
        v = 0;
        int rc = draw_bytes(s, &v, mask <= 0xff ? 1 : mask <= 0xffff ? 2 : 8);
        if (rc < 0) {
            return rc;
        }
        v &= mask;
    } while (v >= n); /* a remainder instead would prefer the small ones */
    *out = v;
    return 0;
}

static int draw_digits(struct service *s, const struct id_space *space, uint16_t *digits)
{
    for (uint32_t d = 0; d < space->length; d++) {
        uint64_t digit;
        int rc = mr__draw_below(s, space->base, &digit);
        if (rc < 0) {
            return rc;
        }
        digits[d] = (uint16_t)digit;
    }
    return 0;
}

static size_t render(const struct id_space *space, const uint16_t *digits, char *id)
{
    size_t n = 0;

    for (uint32_t i = 0; i < space->length; i++) {
        if (space->charset) {
            id[n++] = space->charset[digits[i]];
        } else {
            size_t word_n = strlen(mr__words[digits[i]]);
            memcpy(id + n, mr__words[digits[i]], word_n);
            n += word_n;
        }
    }
    return n;
}

/* The next id in an order that visits all of them before it comes back. */
static void advance(const struct id_space *space, uint16_t *digits)
{
    for (uint32_t i = 0; i < space->length; i++) {
        if (++digits[i] < space->base) {
            return;
        }
        digits[i] = 0;
    }
}

/* How many ids must be looked at to know: all of them, or one more than there are sessions. */
static uint64_t sweep_length(const struct service *s, const struct id_space *space)
{
    uint64_t enough = s->sessions.n + 1, size = 1;

    for (uint32_t i = 0; i < space->length && size < enough; i++) {
        size *= space->base;
    }
    return size < enough ? size : enough;
}

/*
 * Random draws first. When they all hit somebody's, the space is small and nearly full:
 * then we walk from a random place, so that an id is found if there is one. A walk that
 * found nothing is remembered until a session ends, or every registration on a server
 * that is full would cost one.
 */
static int draw_id(struct service *s, const struct id_space *space, bool *used_up, char **out,
                   size_t *out_n)
{
    uint16_t digits[DIGITS_MAX];
    char id[MR_OID_MAX + 1];
    size_t n = 0;
    bool is_found = false;

    for (unsigned i = 0; i < RANDOM_TRIES && !is_found && !*used_up; i++) {
        int rc = draw_digits(s, space, digits);
        if (rc < 0) {
            return rc;
        }
        n = render(space, digits, id);
        is_found = !space->is_taken(s, id, n);
    }
    if (!is_found && !*used_up) {
        for (uint64_t left = sweep_length(s, space); left > 0 && !is_found; left--) {
            advance(space, digits);
            n = render(space, digits, id);
            is_found = !space->is_taken(s, id, n);
        }
        *used_up = !is_found;
    }
    if (!is_found) {
        return -ENOSPC;
    }
    *out = mr__strndup(id, n);
    *out_n = n;
    explicit_bzero(id, sizeof id);
    explicit_bzero(digits, sizeof digits);
    return *out ? 0 : -ENOMEM;
}

static bool is_oid_taken(const struct service *s, const char *id, size_t n)
{
    return mr__session_by_oid(s, id, n) != NULL;
}

static bool is_pid_taken(const struct service *s, const char *id, size_t n)
{
    return mr__session_by_pid(s, id, n) != NULL;
}

int mr__draw_oid(struct service *s, char **id, size_t *n)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    struct id_space space = {.is_taken = is_oid_taken};

    if (v->enable_words_oid) {
        space.base = MR_WORD_COUNT;
        space.length = v->words_oid_length;
    } else {
        space.charset = v->oid_charset;
        space.base = (uint32_t)strlen(v->oid_charset);
        space.length = v->oid_length;
    }
    return draw_id(s, &space, &s->oids_used_up, id, n);
}

int mr__draw_pid(struct service *s, char **id, size_t *n)
{
    const struct settings_values *v = mr__settings_values(s->settings);
    const struct id_space space = {
        .charset = v->pid_charset,
        .base = (uint32_t)strlen(v->pid_charset),
        .length = v->pid_length,
        .is_taken = is_pid_taken,
    };

    return draw_id(s, &space, &s->pids_used_up, id, n);
}
