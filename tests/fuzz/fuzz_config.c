/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a config file: it is read, or refused in one line, within its budget and
 * its memory. This is also any Lua program in the sandbox.
 */
#include "script/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_settings(const struct config *c)
{
    for (size_t i = 0; i < mr__config_setting_count(c); i++) {
        struct config_setting s;

        mr__config_setting(c, i, &s);
        if (!s.key || strlen(s.value) > s.n || strncmp(s.place, "f.lua", 5) != 0) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char key[] = "KEY=value", *environment[] = {key, NULL};
    struct config_options opts = {
        .environment = environment, .cpu_ns = 5000000, .memory_bytes = 2u << 20};
    struct script_error err = {.text = ""};
    struct config *c;

    if (mr__config_parse(&c, &opts, (const char *)data, size, "f.lua", &err) == 0) {
        check_settings(c);
        mr__config_unref(c);
    } else if (err.text[0] == '\0' || strchr(err.text, '\n')) {
        abort();
    }
    return 0;
}
