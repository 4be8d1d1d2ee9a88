/* SPDX-License-Identifier: MIT */
/*
 * What a person asks for without a server running: settings, version. One thread.
 */
#include "engine/moonrelay.h"
#include "server/moonrelay/server.h"
#include "server/startup.h"
#include "service/settings.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <luajit.h>
#include <microhttpd.h>
#include <sodium.h>
#include <string.h>
#include <uv.h>

static void print_row(FILE *out, const struct settings *s, size_t i)
{
    struct settings_row row;
    const char *source;

    mr__settings_row(s, i, &row);
    source = mr__settings_source_name(row.source);
    fprintf(out, "%-32s %-24s %-7s %s%s%s%s\n", row.key, *row.value ? row.value : "(empty)",
            row.is_live ? "live" : "restart", source, row.place ? " (" : "",
            row.place ? row.place : "", row.place ? ")" : "");
}

static void print_one(FILE *out, const struct settings *s, size_t i)
{
    struct settings_row row;

    mr__settings_row(s, i, &row);
    print_row(out, s, i);
    fprintf(out, "  %s\n  default: %s\n", row.help, *row.preset ? row.preset : "(empty)");
    if (row.noray) {
        fprintf(out, "  also: %s\n", row.noray);
    }
}

int mr_server_print_settings(const struct mr_server_options *opts, const char *key, FILE *out,
                             struct mr_server_error *err)
{
    struct startup_sources sources;
    struct startup start;
    int found = key ? mr__settings_find(key) : 0;
    int rc;

    if (found < 0) {
        const char *near = mr__settings_suggest(key);
        return mr__startup_fail(err, MR_SERVER_EXIT_USAGE, -ENOENT, "no such setting: %.100s%s%s%s",
                                key, near ? "; did you mean " : "", near ? near : "",
                                near ? "?" : "");
    }
    rc = mr__startup_sources_init(&sources, opts, err);
    if (rc < 0) {
        return rc;
    }
    rc = mr__startup_read(&start, &sources, err);
    if (rc < 0) {
        mr__startup_sources_deinit(&sources);
        return rc;
    }
    if (key) {
        print_one(out, start.settings, (size_t)found);
    } else {
        for (size_t i = 0; i < mr__settings_row_count(); i++) {
            print_row(out, start.settings, i);
        }
    }
    mr__startup_deinit(&start);
    mr__startup_sources_deinit(&sources);
    return 0;
}

void mr_server_print_version(FILE *out)
{
    fprintf(out, "moonrelay %s\nlibuv %s\nlibmicrohttpd %s\n%s\n", mr_version(),
            uv_version_string(), MHD_get_version(), LUAJIT_VERSION);
    fprintf(out, "libcurl %s\njansson %s\nlibsodium %s\n",
            curl_version_info(CURLVERSION_NOW)->version, jansson_version_str(),
            sodium_version_string());
}
