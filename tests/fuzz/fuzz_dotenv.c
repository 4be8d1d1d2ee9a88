/* SPDX-License-Identifier: MIT */
/*
 * The text of a .env file, any bytes: what it sets can be read or is refused with a
 * message on one line; nothing leaks.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings *s = mr__settings_create();

    require(s != NULL);
    require(mr__settings_offer_dotenv(s, (const char *)data, size, ".env") == 0);
    bool has_error = false;
    int rc = mr__settings_resolve(s);
    for (size_t i = 0; i < mr__settings_message_count(s); i++) {
        const struct settings_message *m = mr__settings_message(s, i);
        has_error = has_error || m->is_error;
        require(m->text[0] && !strchr(m->text, '\n'));
    }
    require(has_error == (rc < 0));
    mr__settings_forget(s, MR_SETTING_DOTENV);
    require(mr__settings_resolve(s) == 0);
    require(mr__settings_message_count(s) == 0);
    mr__settings_destroy(s);
    require(mr__alloc_live() == 0);
    return 0;
}
