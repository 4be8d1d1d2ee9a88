/* SPDX-License-Identifier: MIT */
/*
 * Somebody else's program: it sees only what an installation gives. Makes an engine without sockets
 * in its own thread, asks one decision, and ends.
 */
#include <moonrelay.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    struct mr_options opts;
    struct mr_addr addr;
    struct mr *mr = NULL;

    mr_options_init(&opts, sizeof opts);
    opts.workers = 0;
    opts.io = MR_IO_NONE;
    opts.max_ports = 16;
    int rc = mr_create(&mr, &opts);
    if (rc < 0) {
        fprintf(stderr, "mr_create: %s\n", mr_strerror(rc));
        return 1;
    }
    if (mr_addr_parse(&addr, "192.0.2.1:4000", strlen("192.0.2.1:4000"), NULL) != MR_ADDR_OK ||
        strcmp(mr_verdict_name(MR_VERDICT_FORWARD), "forward") != 0) {
        return 1;
    }
    mr_destroy(mr);
    puts(mr_version());
    return 0;
}
