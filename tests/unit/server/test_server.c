/* SPDX-License-Identifier: MIT */
/*
 * The server as a library: a host program steps it by its descriptor and timeout, and
 * nothing is left when it is gone, whether it ran or failed to start.
 */
#include "server/moonrelay/server.h"

#include "base/alloc.h"
#include "host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

static char answer[1 << 20];

TEST(a_host_that_steps_it_serves_players)
{
    struct host h;
    char pid[512];

    start(&h, NULL, 0);
    CHECK_STR(h.err.text, "");
    REQUIRE_EQ(h.rc, 0);
    int tcp = client_open(SOCK_STREAM, port_of(&h, "command="));
    int udp = client_open(SOCK_DGRAM, port_of(&h, "registrar="));
    ask(&h, tcp, "echo hello\n", "\n", answer, sizeof answer);
    CHECK_STR(answer, "echo hello\n");
    ask(&h, tcp, "register-host\n", "set-pid ", answer, sizeof answer);
    REQUIRE_EQ(sscanf(strstr(answer, "set-pid "), "set-pid %511s", pid), 1);
    ask(&h, udp, pid, "OK", answer, sizeof answer);
    CHECK_STR(answer, "OK");
    close(tcp);
    close(udp);
    end(&h);
}

TEST(it_is_ready_when_it_was_created_and_says_so_over_http)
{
    struct host h;

    start(&h, NULL, 0);
    REQUIRE_EQ(h.rc, 0);
    int fd = client_open(SOCK_STREAM, port_of(&h, "http="));
    ask(&h, fd, "GET /readyz HTTP/1.0\r\n\r\n", "\r\n\r\n", answer, sizeof answer);
    CHECK(strstr(answer, " 200 ") != NULL);
    close(fd);
    fd = client_open(SOCK_STREAM, port_of(&h, "http="));
    ask(&h, fd, "GET /metrics HTTP/1.0\r\n\r\n", "moonrelay_log_dropped_total 0\n", answer,
        sizeof answer);
    CHECK(strstr(answer, "\nmoonrelay_control_stall_seconds_count ") != NULL);
    CHECK(strstr(answer, "\nprocess_open_fds ") != NULL);
    close(fd);
    end(&h);
}

TEST(a_stop_ends_it_with_a_player_connected)
{
    struct host h;
    char c;

    start(&h, NULL, 0);
    REQUIRE_EQ(h.rc, 0);
    int fd = client_open(SOCK_STREAM, port_of(&h, "command="));
    ask(&h, fd, "echo a\n", "\n", answer, sizeof answer);
    mr_server_stop(h.server);
    REQUIRE_IN_TURNS(&h, mr_server_step(h.server) == 0);
    CHECK_EQ(recv(fd, &c, 1, 0), 0);
    CHECK_EQ(mr_server_step(h.server), 0);
    CHECK_EQ(mr_server_run(h.server), 0);
    close(fd);
    end(&h);
}

/* The daemon ends by _exit() and takes nothing apart. */
TEST(the_control_sockets_file_is_gone_when_it_has_stopped)
{
    char dir[] = "/tmp/moonrelay-control-XXXXXX", set[128], path[96];
    const char *sets[1] = {set};
    struct stat st;
    struct host h;

    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/socket", dir);
    snprintf(set, sizeof set, "control=%s", path);
    start(&h, sets, 1);
    CHECK_STR(h.err.text, "");
    REQUIRE_EQ(h.rc, 0);
    CHECK_EQ(lstat(path, &st), 0);
    mr_server_stop(h.server);
    CHECK_EQ(mr_server_run(h.server), 0);
    CHECK_EQ(lstat(path, &st), -1);
    CHECK_EQ(rmdir(dir), 0);
    end(&h);
}

static void *stop_it(void *arg)
{
    mr_server_hangup(arg);
    mr_server_stop(arg);
    return NULL;
}

TEST(another_thread_may_stop_it_while_it_runs)
{
    static const char *const info = "loglevel=info";
    struct host h;
    pthread_t thread;

    start(&h, &info, 1);
    REQUIRE_EQ(h.rc, 0);
    REQUIRE_EQ(pthread_create(&thread, NULL, stop_it, h.server), 0);
    CHECK_EQ(mr_server_run(h.server), 0);
    pthread_join(thread, NULL);
    mr_server_flush_log(h.server, 5000);
    ssize_t n = pread(h.log, answer, sizeof answer - 1, 0);
    answer[n > 0 ? n : 0] = 0;
    CHECK(strstr(answer, "by=HUP") != NULL);
    end(&h);
}

TEST(two_servers_live_in_one_program)
{
    struct host a, b;

    start(&a, NULL, 0);
    start(&b, NULL, 0);
    REQUIRE_EQ(a.rc, 0);
    REQUIRE_EQ(b.rc, 0);
    int fd = client_open(SOCK_STREAM, port_of(&b, "command="));
    ask(&b, fd, "echo b\n", "\n", answer, sizeof answer);
    CHECK_STR(answer, "echo b\n");
    end(&b);
    close(fd);
    fd = client_open(SOCK_STREAM, port_of(&a, "command="));
    ask(&a, fd, "echo a\n", "\n", answer, sizeof answer);
    CHECK_STR(answer, "echo a\n");
    close(fd);
    end(&a);
}

/* Starts with one more setting; nothing may be left, and the reason has `words`. */
static void check_refused(const char *set, enum mr_server_exit code, const char *words)
{
    struct host h;

    start(&h, &set, 1);
    CHECK_LT(h.rc, 0);
    CHECK_EQ(h.server, NULL);
    CHECK_EQ(h.err.code, code);
    CHECK(strchr(h.err.text, '\n') == NULL);
    if (!strstr(h.err.text, words)) {
        FAIL("\"%s\" does not say \"%s\"", h.err.text, words);
    }
    close(h.log);
}

TEST(a_wrong_setting_is_named_with_its_value_and_nothing_is_left)
{
    check_refused("loglevel=loud", MR_SERVER_EXIT_USAGE, "loud");
    check_refused("udp_relay_ports=5-3", MR_SERVER_EXIT_USAGE, "5-3");
    check_refused("udp_relay_port=1", MR_SERVER_EXIT_USAGE, "udp_relay_ports");
    check_refused("no equals sign", MR_SERVER_EXIT_USAGE, "key=value");
    check_refused("config=/nonexistent/moonrelay.lua", MR_SERVER_EXIT_USAGE,
                  "/nonexistent/moonrelay.lua");
    check_refused("policies=nobody-ships-this", MR_SERVER_EXIT_USAGE, "nobody-ships-this");
}

TEST(a_port_in_use_is_named_with_its_key_and_nothing_is_left)
{
    static const char *const keys[] = {"socket_port", "http_port", "udp_registrar_port"};
    static const int types[] = {SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM};

    for (int i = 0; i < 3; i++) {
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof sa;
        char set[64];
        int fd = socket(AF_INET, types[i] | SOCK_CLOEXEC, 0);

        REQUIRE(fd >= 0);
        REQUIRE_EQ(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
        if (types[i] == SOCK_STREAM) {
            REQUIRE_EQ(listen(fd, 1), 0);
        }
        REQUIRE_EQ(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
        snprintf(set, sizeof set, "%s=%u", keys[i], ntohs(sa.sin_port));
        check_refused(set, MR_SERVER_EXIT_FAILED, keys[i]);
        close(fd);
    }
}

TEST(memory_that_runs_out_anywhere_in_a_start_leaves_nothing)
{
    bool is_started = false;
    long before = mr__alloc_live();
    long failed = 0;

    for (long n = 0; !is_started; n++) {
        struct host h;

        mr__alloc_fail_after(n);
        start(&h, NULL, 0);
        mr__alloc_fail_after(-1);
        is_started = h.rc == 0;
        if (is_started) {
            end(&h);
        } else {
            failed++;
            CHECK_EQ(h.server, NULL);
            CHECK(h.err.text[0] != 0);
            close(h.log);
        }
        CHECK_EQ(mr__alloc_live(), before);
        REQUIRE(n < 10000);
    }
    CHECK_GT(failed, 20);
}

/* ---- reloading --------------------------------------------------------------------------- */

struct folder {
    char dir[64], config[96], policy[96], data[96];
    char set[128];
};

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void folder_open(struct folder *f, const char *policy)
{
    strcpy(f->dir, "/tmp/moonrelay-folder-XXXXXX");
    REQUIRE(mkdtemp(f->dir) != NULL);
    snprintf(f->config, sizeof f->config, "%s/moonrelay.lua", f->dir);
    snprintf(f->policy, sizeof f->policy, "%s/mine.lua", f->dir);
    snprintf(f->data, sizeof f->data, "%s/data.txt", f->dir);
    snprintf(f->set, sizeof f->set, "config=%s", f->config);
    write_file(f->config, "return { policies = { './mine.lua' } }");
    write_file(f->policy, policy);
}

static void folder_close(struct folder *f)
{
    unlink(f->config);
    unlink(f->policy);
    unlink(f->data);
    CHECK_EQ(rmdir(f->dir), 0);
}

static void check_says(struct host *h, const char *words)
{
    int tcp = client_open(SOCK_STREAM, port_of(h, "command="));

    ask(h, tcp, "register-host\n", "\n", answer, sizeof answer);
    if (!strstr(answer, words)) {
        FAIL("\"%s\" and not \"%s\"", answer, words);
    }
    close(tcp);
}

static const char *log_of(struct host *h)
{
    mr_server_flush_log(h->server, 5000);
    ssize_t n = pread(h->log, answer, sizeof answer - 1, 0);
    answer[n > 0 ? n : 0] = 0;
    return answer;
}

TEST(memory_that_runs_out_anywhere_in_a_reload_leaves_what_was_in_use)
{
    static const char first[] = "return { register = function() return false, 'first' end }";
    static const char second[] = "return { register = function() return false, 'second' end }";
    struct folder f;
    struct host h;
    const char *sets[2];
    bool is_through = false;
    long failed = 0;

    folder_open(&f, first);
    sets[0] = f.set;
    sets[1] = "loglevel=info";
    start(&h, sets, 2);
    CHECK_STR(h.err.text, "");
    REQUIRE_EQ(h.rc, 0);
    write_file(f.policy, second);
    for (long n = 0; !is_through; n++) {
        REQUIRE_EQ(ftruncate(h.log, 0), 0);
        REQUIRE_EQ(lseek(h.log, 0, SEEK_SET), 0);
        mr__alloc_fail_after(n);
        mr_server_hangup(h.server);
        for (int i = 0; i < 3; i++) {
            REQUIRE_EQ(mr_server_step(h.server), 1);
        }
        mr__alloc_fail_after(-1);
        is_through = strstr(log_of(&h), "in use what=reload") != NULL;
        failed += !is_through;
        if (!is_through && n % 16 == 0) {
            check_says(&h, "rejected:first");
        }
        REQUIRE(n < 10000);
    }
    CHECK_GT(failed, 10);
    check_says(&h, "rejected:second");
    end(&h);
    folder_close(&f);
}

/* ---- loading that waits ------------------------------------------------------------------ */

static const char reading[] = "local relay, word = require 'relay', 'none'\n"
                              "return {\n"
                              "  load = function() word = assert(relay.read('data.txt')) end,\n"
                              "  register = function() return false, word end,\n"
                              "}\n";

TEST(a_policy_may_read_while_it_loads_and_a_check_does_it_too)
{
    struct mr_server_error err = {.text = ""};
    struct mr_server_options opts;
    struct folder f;
    struct host h;
    const char *sets[1];

    folder_open(&f, reading);
    mr_server_options_init(&opts, sizeof opts);
    opts.config = f.config;
    CHECK_EQ(mr_server_check(&opts, NULL, &err), -EINVAL);
    CHECK(strstr(err.text, "data.txt") != NULL);
    write_file(f.data, "read");
    CHECK_EQ(mr_server_check(&opts, NULL, &err), 0);
    sets[0] = f.set;
    start(&h, sets, 1);
    CHECK_STR(h.err.text, "");
    REQUIRE_EQ(h.rc, 0);
    check_says(&h, "rejected:read");
    end(&h);
    folder_close(&f);
}

/* A server that ends while a load waits for one that never answers. */
TEST(it_ends_in_the_middle_of_a_reload)
{
    static const char asking[] = "local relay = require 'relay'\n"
                                 "return { load = function()\n"
                                 "  relay.http { url = 'http://127.0.0.1:%u/', timeout = 8 }\n"
                                 "end }\n";
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sa;
    struct folder f;
    struct host h;
    const char *sets[1];
    char policy[512];
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), fd = -1;

    REQUIRE_EQ(bind(silent, (struct sockaddr *)&sa, sizeof sa), 0);
    REQUIRE_EQ(listen(silent, 4), 0);
    REQUIRE_EQ(getsockname(silent, (struct sockaddr *)&sa, &len), 0);
    folder_open(&f, "return {}");
    sets[0] = f.set;
    start(&h, sets, 1);
    REQUIRE_EQ(h.rc, 0);
    snprintf(policy, sizeof policy, asking, ntohs(sa.sin_port));
    write_file(f.policy, policy);
    mr_server_hangup(h.server);
    REQUIRE_IN_TURNS(&h, (fd = accept(silent, NULL, NULL)) >= 0);
    end(&h);
    close(fd);
    close(silent);
    folder_close(&f);
}

TEST(a_check_opens_nothing)
{
    struct mr_server_error err = {.text = ""};
    struct mr_server_options opts;

    mr_server_options_init(&opts, sizeof opts);
    CHECK_EQ(mr_server_check(&opts, NULL, &err), 0);
    opts.config = "/nonexistent/moonrelay.lua";
    CHECK_EQ(mr_server_check(&opts, NULL, &err), -EINVAL);
    CHECK_EQ(err.code, MR_SERVER_EXIT_USAGE);
    CHECK(strstr(err.text, "/nonexistent/moonrelay.lua") != NULL);
}

TEST_MAIN(TEST_CASE(a_host_that_steps_it_serves_players),
          TEST_CASE(it_is_ready_when_it_was_created_and_says_so_over_http),
          TEST_CASE(a_stop_ends_it_with_a_player_connected),
          TEST_CASE(the_control_sockets_file_is_gone_when_it_has_stopped),
          TEST_CASE(another_thread_may_stop_it_while_it_runs),
          TEST_CASE(two_servers_live_in_one_program),
          TEST_CASE(a_wrong_setting_is_named_with_its_value_and_nothing_is_left),
          TEST_CASE(a_port_in_use_is_named_with_its_key_and_nothing_is_left),
          TEST_CASE(memory_that_runs_out_anywhere_in_a_start_leaves_nothing),
          TEST_CASE(memory_that_runs_out_anywhere_in_a_reload_leaves_what_was_in_use),
          TEST_CASE(a_policy_may_read_while_it_loads_and_a_check_does_it_too),
          TEST_CASE(it_ends_in_the_middle_of_a_reload), TEST_CASE(a_check_opens_nothing))
