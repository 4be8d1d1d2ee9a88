/* SPDX-License-Identifier: MIT */
/*
 * Bodies of the control socket's requests: the first byte chooses the request, the rest is
 * its body. What is accepted lies within the body's limits, what is refused says why.
 */
#include "control/request.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[MR_REQUEST_WHY_MAX];
    struct request r;
    int rc;

    if (size == 0) {
        return 0;
    }
    rc = mr__request_parse(&r, (enum request_kind)(data[0] % MR_REQUEST_COUNT),
                           (const char *)data + 1, size - 1, why);
    if (rc == -EINVAL && (why[0] == 0 || r.root || strpbrk(why, "\r\n"))) {
        abort();
    }
    if (rc == 0) {
        size_t n = r.id.n + r.what.n + r.reason.n + r.policy.n + r.verb.n;
        for (size_t i = 0; i < r.n_args; i++) {
            n += r.args[i].n;
        }
        if (n > size || r.n_args > MR_REQUEST_ARGS_MAX || r.seconds < 0) {
            abort();
        }
        mr__request_deinit(&r);
    }
    return 0;
}
