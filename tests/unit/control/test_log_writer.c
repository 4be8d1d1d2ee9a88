/* SPDX-License-Identifier: MIT */
/*
 * The log writer over real pipes: what a reader that stands still, one that went away and
 * several threads at once do to it.
 */
#include "control/log_writer.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

enum { RING = 16 * 1024, LINE = 100 };

static char line_buffer[LINE + 1];

/* "0000017 xxxx...\n", LINE bytes. */
static const char *numbered_line(unsigned i)
{
    memset(line_buffer, 'x', LINE);
    snprintf(line_buffer, sizeof line_buffer, "%07u", i);
    line_buffer[7] = ' ';
    line_buffer[LINE - 1] = '\n';
    return line_buffer;
}

static struct log_writer *writer_on(int fd)
{
    struct log_writer *w = NULL;

    REQUIRE_EQ(mr__log_writer_create(&w, fd, MR_LOG_TEXT, RING), 0);
    return w;
}

static size_t read_all(int fd, char *buf, size_t cap)
{
    size_t n = 0;
    ssize_t k;

    while (n < cap && (k = read(fd, buf + n, cap - n)) > 0) {
        n += (size_t)k;
    }
    return n;
}

TEST(lines_arrive_whole_and_in_order)
{
    static char got[64 * LINE];
    int p[2];

    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    struct log_writer *w = writer_on(p[1]);
    for (unsigned i = 0; i < 64; i++) {
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(i), LINE);
    }
    CHECK(mr__log_writer_flush(w, 5000));
    mr__log_writer_destroy(w, 0);
    close(p[1]);
    REQUIRE_EQ(read_all(p[0], got, sizeof got), sizeof got);
    for (unsigned i = 0; i < 64; i++) {
        CHECK_MEM(got + (size_t)i * LINE, LINE, numbered_line(i), LINE);
    }
    close(p[0]);
}

/* Whole lines of the numbered kind, and the sum of what reports say is missing. */
static unsigned count_kept(char *text, unsigned *missing)
{
    unsigned kept = 0;

    *missing = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *count = strstr(line, "lines=");
        kept += strlen(line) == LINE - 1 && strspn(line, "0123456789") == 7;
        *missing += count ? (unsigned)strtoul(count + 6, NULL, 10) : 0;
    }
    return kept;
}

TEST(a_reader_that_stands_still_stops_nobody_and_is_told_what_it_missed)
{
    static char got[2 * 1024 * 1024];
    int p[2];
    unsigned n = 0, missing;

    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    struct log_writer *w = writer_on(p[1]);
    do { /* until the pipe takes no more */
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(n++), LINE);
    } while (mr__log_writer_flush(w, 50));
    while (mr__log_writer_dropped(w) < 500) { /* all of these come back at once */
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(n++), LINE);
        REQUIRE(n < 100000);
    }

    fcntl(p[0], F_SETFL, O_NONBLOCK);
    size_t used = 0;
    REQUIRE(TEST_UNTIL(
        (used += read_all(p[0], got + used, sizeof got - used), mr__log_writer_flush(w, 1))));
    mr__log_writer_push(w, MR_LOG_INFO, "the end\n", 8);
    CHECK_EQ(mr__log_writer_dropped(w), 500u);
    mr__log_writer_destroy(w, 5000);
    used += read_all(p[0], got + used, sizeof got - used - 1);
    got[used] = 0;
    CHECK_STR(strstr(got, "the end"), "the end\n");
    CHECK_EQ(count_kept(got, &missing), n - 500);
    CHECK_EQ(missing, 500u);
    close(p[0]);
    close(p[1]);
}

TEST(a_full_pipe_does_not_hold_up_the_end)
{
    int p[2];

    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    struct log_writer *w = writer_on(p[1]);
    while (mr__log_writer_dropped(w) == 0) {
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(0), LINE);
    }
    mr__log_writer_destroy(w, 10); /* a writer that waited for its reader would wait for ever */
    close(p[0]);
    close(p[1]);
}

TEST(a_pipe_filled_by_somebody_else_does_not_hold_up_the_end)
{
    static char junk[64 * 1024];
    int p[2];

    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    REQUIRE_EQ(write(p[1], junk, sizeof junk), (ssize_t)sizeof junk);
    fcntl(p[1], F_SETFL, 0);
    struct log_writer *w = writer_on(p[1]);
    mr__log_writer_push(w, MR_LOG_INFO, numbered_line(0), LINE);
    mr__log_writer_destroy(w, 10);
    close(p[0]);
    close(p[1]);
}

TEST(a_reader_that_went_away_costs_its_lines_and_no_signal)
{
    int p[2];

    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    close(p[0]);
    signal(SIGPIPE, SIG_DFL); /* it would end this test */
    struct log_writer *w = writer_on(p[1]);
    for (unsigned i = 0; i < 10; i++) {
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(i), LINE);
    }
    CHECK(mr__log_writer_flush(w, 5000));
    CHECK_EQ(mr__log_writer_dropped(w), 10u);
    mr__log_writer_destroy(w, 1000);
    close(p[1]);
}

TEST(a_full_disk_costs_its_lines_until_it_has_room_again)
{
    char text[LINE + 1] = "";
    int p[2], fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(pipe2(p, O_CLOEXEC), 0);
    struct log_writer *w = writer_on(fd);
    for (unsigned i = 0; i < 10; i++) {
        mr__log_writer_push(w, MR_LOG_INFO, numbered_line(i), LINE);
    }
    CHECK(mr__log_writer_flush(w, 10000));
    CHECK_EQ(mr__log_writer_dropped(w), 10u);
    REQUIRE_GE(dup3(p[1], fd, O_CLOEXEC), 0);
    mr__log_writer_push(w, MR_LOG_INFO, numbered_line(10), LINE);
    CHECK(mr__log_writer_flush(w, 10000));
    mr__log_writer_destroy(w, 1000);
    close(fd);
    close(p[1]);
    CHECK_EQ(read_all(p[0], text, LINE), LINE);
    CHECK_STR(text, numbered_line(10));
    close(p[0]);
}

TEST(a_full_pipe_that_does_not_block_is_waited_for)
{
    static char got[64 * 1024];
    int p[2];
    size_t n = 0;

    REQUIRE_EQ(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
    REQUIRE_EQ(write(p[1], got, sizeof got), (ssize_t)sizeof got);
    struct log_writer *w = writer_on(p[1]);
    mr__log_writer_push(w, MR_LOG_INFO, numbered_line(7), LINE);
    CHECK(!mr__log_writer_flush(w, 20));
    CHECK(TEST_UNTIL((n += read_all(p[0], got, sizeof got), n >= sizeof got + LINE)));
    CHECK_EQ(mr__log_writer_dropped(w), 0u);
    mr__log_writer_destroy(w, 1000);
    close(p[0]);
    close(p[1]);
}

enum { PUSHERS = 4, PUSHES = 5000 };

static void *push_many(void *arg)
{
    char line[LINE];

    memset(line, 'a' + (int)(intptr_t)pthread_self() % 16, sizeof line);
    line[LINE - 1] = '\n';
    for (int i = 0; i < PUSHES; i++) {
        mr__log_writer_push(arg, MR_LOG_INFO, line, sizeof line);
    }
    return NULL;
}

TEST(threads_share_it_and_every_line_is_written_or_counted)
{
    char path[] = "/tmp/moonrelay-log-XXXXXX";
    int fd = mkstemp(path);
    pthread_t threads[PUSHERS];
    unsigned whole = 0;

    REQUIRE(fd >= 0);
    unlink(path);
    struct log_writer *w = writer_on(fd);
    for (int i = 0; i < PUSHERS; i++) {
        REQUIRE_EQ(pthread_create(&threads[i], NULL, push_many, w), 0);
    }
    for (int i = 0; i < PUSHERS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(mr__log_writer_flush(w, 5000));
    uint64_t dropped = mr__log_writer_dropped(w);
    mr__log_writer_destroy(w, 1000);
    FILE *f = fdopen(fd, "r+");
    REQUIRE(f != NULL);
    rewind(f);
    for (char line[512]; fgets(line, sizeof line, f);) {
        /* The reports about dropped lines have another length. */
        whole += strlen(line) == LINE && strspn(line, (char[]){line[0], 0}) == LINE - 1;
    }
    CHECK_EQ(whole + dropped, (unsigned)PUSHERS * PUSHES);
    fclose(f);
}

TEST_MAIN(TEST_CASE(lines_arrive_whole_and_in_order),
          TEST_CASE(a_reader_that_stands_still_stops_nobody_and_is_told_what_it_missed),
          TEST_CASE(a_full_pipe_does_not_hold_up_the_end),
          TEST_CASE(a_pipe_filled_by_somebody_else_does_not_hold_up_the_end),
          TEST_CASE(a_reader_that_went_away_costs_its_lines_and_no_signal),
          TEST_CASE(a_full_disk_costs_its_lines_until_it_has_room_again),
          TEST_CASE(a_full_pipe_that_does_not_block_is_waited_for),
          TEST_CASE(threads_share_it_and_every_line_is_written_or_counted))
