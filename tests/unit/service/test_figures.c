/* SPDX-License-Identifier: MIT */
/*
 * The page of figures under a strict reader of the text format, and the writer by itself.
 * One thread.
 */
#include "service/metrics.h"

#include "test.h"
#include "world.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { NAMES_MAX = 400, SERIES_MAX = 4000 };

static char families[NAMES_MAX][96];
static char types[NAMES_MAX][16];
static size_t n_families;
static char *series[SERIES_MAX];
static size_t n_series;

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isalpha((unsigned char)s[i]) && s[i] != '_' && s[i] != ':' &&
            !(i > 0 && isdigit((unsigned char)s[i]))) {
            return false;
        }
    }
    return n > 0;
}

static size_t find_family(const char *name, size_t n)
{
    for (size_t i = 0; i < n_families; i++) {
        if (strlen(families[i]) == n && memcmp(families[i], name, n) == 0) {
            return i;
        }
    }
    return NAMES_MAX;
}

/* {key="value",...}: returns what follows, or NULL. */
static const char *skip_labels(const char *s)
{
    for (s++;; s++) {
        const char *key = s;
        while (*s && *s != '=') {
            s++;
        }
        if (!is_name(key, (size_t)(s - key)) || s[0] != '=' || s[1] != '"') {
            return NULL;
        }
        for (s += 2; *s && *s != '"'; s++) {
            if (*s == '\n' || (*s == '\\' && !strchr("\\\"n", *++s))) {
                return NULL;
            }
        }
        if (*s++ != '"') {
            return NULL;
        }
        if (*s == '}') {
            return s + 1;
        }
        if (*s != ',') {
            return NULL;
        }
    }
}

static void read_comment(const char *line)
{
    char name[96], type[16];

    if (sscanf(line, "# HELP %95s", name) == 1) {
        CHECK_EQ(find_family(name, strlen(name)), NAMES_MAX);
        snprintf(families[n_families], sizeof families[0], "%s", name);
        types[n_families++][0] = '\0';
    } else if (sscanf(line, "# TYPE %95s %15s", name, type) == 2) {
        REQUIRE(n_families > 0);
        CHECK_STR(families[n_families - 1], name);
        CHECK_EQ(types[n_families - 1][0], '\0');
        CHECK(!strcmp(type, "counter") || !strcmp(type, "gauge") || !strcmp(type, "histogram"));
        snprintf(types[n_families - 1], sizeof types[0], "%s", type);
    } else {
        FAIL("a comment that is none of ours: %s", line);
    }
}

/* Buckets grow, the last one is +Inf and equals the count. */
static void read_bucket(const char *line, double v)
{
    static double last_le, last_v;
    static bool is_open;
    const char *le = strstr(line, "le=\"");

    if (strstr(line, "_bucket{") && le) {
        double bound = strncmp(le + 4, "+Inf", 4) == 0 ? HUGE_VAL : strtod(le + 4, NULL);
        if (is_open) {
            CHECK_GT(bound, last_le);
            CHECK_GE(v, last_v);
        }
        is_open = !isinf(bound);
        last_le = bound;
        last_v = v;
    } else {
        CHECK(!is_open);
        if (strstr(line, "_count")) {
            CHECK_EQ(v, last_v);
        }
    }
}

static void read_sample(const char *line)
{
    size_t n = strcspn(line, "{ "), base = n;
    const char *after = line[n] == '{' ? skip_labels(line + n) : line + n;
    char *end;

    REQUIRE(n_families > 0 && after);
    CHECK(is_name(line, n));
    const char *family = families[n_families - 1];
    bool is_histogram = strcmp(types[n_families - 1], "histogram") == 0;
    if (is_histogram) {
        static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
        for (int i = 0; i < 3; i++) {
            size_t k = strlen(suffixes[i]);
            if (n > k && memcmp(line + n - k, suffixes[i], k) == 0) {
                base = n - k;
            }
        }
    }
    if (strlen(family) != base || memcmp(family, line, base) != 0) {
        FAIL("a sample outside of its family %s: %s", family, line);
    }
    CHECK_EQ(*after, ' ');
    double v = strtod(after + 1, &end);
    CHECK(end > after + 1 && *end == '\0');
    CHECK(strcmp(types[n_families - 1], "counter") != 0 || v >= 0);
    if (is_histogram) {
        read_bucket(line, v);
    }
    REQUIRE(n_series < SERIES_MAX);
    series[n_series] = strndup(line, (size_t)(after - line));
    for (size_t i = 0; i < n_series; i++) {
        if (strcmp(series[i], series[n_series]) == 0) {
            FAIL("twice: %s", series[i]);
        }
    }
    n_series++;
}

static void read_page(char *page, size_t n)
{
    n_families = 0;
    REQUIRE(n > 0 && page[n - 1] == '\n');
    CHECK_EQ(strlen(page), n);
    for (char *line = page, *lf; *line; line = lf + 1) {
        lf = strchr(line, '\n');
        REQUIRE(lf);
        *lf = '\0';
        if (line[0] == '#') {
            read_comment(line);
        } else {
            read_sample(line);
        }
    }
    for (size_t i = 0; i < n_families; i++) {
        CHECK(types[i][0]);
    }
    while (n_series > 0) {
        free(series[--n_series]);
    }
}

TEST(the_page_is_well_formed_after_a_junk_run)
{
    struct world *w = world_open(NULL);
    struct player p = world_join(w, "10.0.0.1:5000", "10.0.0.1:6000");
    struct player q = world_join(w, "10.0.0.2:5000", "10.0.0.2:6000");
    unsigned a, b;
    size_t n;

    REQUIRE(world_relay(w, &p, &q, &a, &b));
    world_answer(w, MR_HOOK_DROP, MR_HOOK_NO_OPINION);
    for (unsigned i = 0; i < 2000; i++) {
        char text[200];
        for (unsigned k = 0; k < sizeof text - 1; k++) {
            text[k] = (char)test_random_below(256);
        }
        text[sizeof text - 1] = '\n';
        world_send(w, p.conn, text, sizeof text);
        world_registrar(w, "10.0.0.7:6000", text, (size_t)test_random_below(200));
        snprintf(text, sizeof text, "10.0.0.%u:%u", i % 200, 5000 + i);
        world_inject(w, text, 49152 + i % 16, i % 1500);
    }
    char *page = mr__service_metrics(w->service, &n, w->now_ns);
    REQUIRE(page);
    read_page(page, n);
    CHECK_GT(n_families, 20);
    mr__free(page);
    world_close(w);
}

static void write_extra(void *user, struct metrics *m)
{
    mr__metrics_family(m, user, MR_METRIC_GAUGE, "A \\ help \"of\"\ntwo lines.");
    const struct metric_label l = {"policy", {"a\"b\\c\nd\0e", 9}};
    mr__metrics_double(m, &l, 1, 0.5);
    mr__metrics_double(m, NULL, 0, -HUGE_VAL);
}

TEST(other_layers_write_on_the_same_page_and_labels_are_escaped)
{
    static char name[] = "extra_things";
    struct world *w = world_open(NULL);
    size_t n;

    CHECK_EQ(mr__service_add_metrics(w->service, write_extra, name), 0);
    char *page = mr__service_metrics(w->service, &n, w->now_ns);
    REQUIRE(page);
    CHECK(strstr(page, "# HELP extra_things A \\\\ help \"of\"\\ntwo lines.\n"));
    CHECK(strstr(page, "extra_things{policy=\"a\\\"b\\\\c\\nd?e\"} 0.5\n"));
    CHECK(strstr(page, "extra_things -Inf\n"));
    read_page(page, n);
    mr__free(page);
    world_close(w);
}

TEST(a_histogram_is_cumulative_and_ends_in_infinity)
{
    const double bounds[] = {0.5, 1, 2.5};
    const uint64_t counts[] = {1, 0, 2, 4};
    struct metrics *m = mr__metrics_create();
    size_t n;

    REQUIRE(m);
    mr__metrics_family(m, "h", MR_METRIC_HISTOGRAM, "H.");
    mr__metrics_histogram(m, NULL, 0, bounds, counts, 3, 12.25);
    char *text = mr__metrics_finish(m, &n);
    CHECK_STR(text,
              "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"1\"} 1\n"
              "h_bucket{le=\"2.5\"} 3\nh_bucket{le=\"+Inf\"} 7\nh_sum 12.25\nh_count 7\n");
    CHECK_EQ(strlen(text), n);
    mr__free(text);
}

TEST(a_page_that_runs_out_of_memory_is_none)
{
    struct world *w = world_open(NULL);
    char *page = NULL;
    unsigned failures = 0;

    for (long n = 0; !page; n++) {
        mr__alloc_fail_after(n);
        page = mr__service_metrics(w->service, NULL, w->now_ns);
        mr__alloc_fail_after(-1);
        failures += !page;
    }
    CHECK_GT(failures, 1);
    mr__free(page);
    world_close(w);
}

/* ---- readiness ----------------------------------------------------------------------------- */

TEST(ready_is_who_has_applied_a_command_within_the_last_second)
{
    struct world *w = world_open(NULL);

    world_advance(w, 100);
    CHECK_STR(mr__service_not_ready(w->service, w->now_ns), NULL);
    /* The engine is not polled any more: its workers are stuck. */
    for (int i = 0; i < 8; i++) {
        w->now_ns += 250000000;
        mr__service_tick(w->service, w->now_ns);
    }
    const char *why = mr__service_not_ready(w->service, w->now_ns);
    REQUIRE(why);
    CHECK(strstr(why, "workers"));
    world_advance(w, 600);
    CHECK_STR(mr__service_not_ready(w->service, w->now_ns), NULL);
    mr__service_stop(w->service, w->now_ns);
    CHECK_STR(mr__service_not_ready(w->service, w->now_ns), "stopping");
    struct mr_addr a = world_addr("10.0.0.1:5000");
    CHECK_EQ(mr__service_accept(w->service, &a, &a, w->now_ns), 0);
    world_close(w);
}

TEST(the_report_names_ports_as_a_firewall_rule_would)
{
    struct world *w =
        world_open((const char *[]){"udp_relay_ports=40000+3, 41000, 50000-50009", NULL});

    CHECK_STR(w->report.ranges, "40000-40003,41000,50000-50009/udp");
    CHECK_EQ(w->report.asked, 15);
    CHECK_EQ(w->report.opened, 15);
    world_close(w);
}

TEST_MAIN(TEST_CASE(the_page_is_well_formed_after_a_junk_run),
          TEST_CASE(other_layers_write_on_the_same_page_and_labels_are_escaped),
          TEST_CASE(a_histogram_is_cumulative_and_ends_in_infinity),
          TEST_CASE(a_page_that_runs_out_of_memory_is_none),
          TEST_CASE(ready_is_who_has_applied_a_command_within_the_last_second),
          TEST_CASE(the_report_names_ports_as_a_firewall_rule_would))
