/* SPDX-License-Identifier: MIT */
/*
 * The parsers of settings on any bytes: a refusal always says why, a success keeps its
 * bounds. The first byte chooses which setting the rest is offered to as a whole.
 */
#include "base/alloc.h"
#include "service/settings.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_parsers(const char *text, size_t n)
{
    struct port_list ports;
    const char *why = NULL;
    uint64_t v;
    bool b;

    require(mr__parse_size(text, n, &v, &why) == 0 ? v <= INT64_MAX : why != NULL);
    why = NULL;
    require(mr__parse_duration(text, n, &v, &why) == 0 ? v <= INT64_MAX : why != NULL);
    why = NULL;
    require(mr__parse_bool(text, n, &b, &why) == 0 || why != NULL);
    why = NULL;
    if (mr__parse_ports(text, n, &ports, &why) < 0) {
        require(why != NULL);
        return;
    }
    require(ports.n + ports.any > 0);
    for (size_t i = 0; i < ports.n; i++) {
        require(ports.ports[i] > (i ? ports.ports[i - 1] : 0));
    }
    mr__port_list_deinit(&ports);
}

static void check_offer(size_t which, const char *text, size_t n)
{
    struct settings *s = mr__settings_create();
    struct settings_row row;

    require(s != NULL);
    mr__settings_row(s, which % mr__settings_row_count(), &row);
    require(mr__settings_offer(s, MR_SETTING_CONFIG, row.key, text, n, "fuzz:1") == 0);
    int rc = mr__settings_resolve(s);
    bool has_error = false;
    for (size_t i = 0; i < mr__settings_message_count(s); i++) {
        const struct settings_message *m = mr__settings_message(s, i);
        has_error = has_error || m->is_error;
        require(m->text[0] && !strchr(m->text, '\n'));
    }
    require(has_error == (rc < 0));
    mr__settings_destroy(s);
    require(mr__alloc_live() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        check_parsers((const char *)data + 1, size - 1);
        check_offer(data[0], (const char *)data + 1, size - 1);
    }
    return 0;
}
