/* SPDX-License-Identifier: MIT */
/*
 * A server whose memory runs out, at any allocation of any step of a game: of our C (base/alloc.h)
 * from one on or just once, or of LuaJIT. It may refuse that step. Then the same step works, no
 * player and no relay has stayed, and in the end every block is given back. One thread. To add a
 * step, start at `steps`; a start is swept in test_server.c, too.
 */
#include "host.h"

#include "base/alloc.h"
#include "script/state.h"

#include <sys/stat.h>
#include <sys/un.h>

enum {
    PATIENCE_MS = 100,    /* for an answer that may have been lost with the memory */
    UNHURRIED_MS = 10000, /* for one that must come */
    SWEPT_ALL = 48,       /* so many are tried one by one, later ones ever more thinly */
};

enum seam { OURS_FROM_THEN_ON, OURS_ONCE, LUA_ONCE, SEAMS };

static const char config[] =
    "return { policies = { './mine.lua', { 'dynamic', from = 'anyone' } },\n"
    "         ports = { [0] = {} } }";
static const char policy[] =
    "local relay = require 'relay'\n"
    "local target\n"
    "return {\n"
    "  load = function() return assert(relay.read 'moonrelay.lua') end,\n"
    "  register = function(ev) return { tags = { user = ev.session.ip }, slots = { ['all'] = 9 } } "
    "end,\n"
    "  connect = function(ev) return { via = 'relay' } end,\n"
    "  create = function(ev) return { idle = 60, tags = { made = ev.reason } } end,\n"
    "  created = function(ev) relay.log.debug('created', { id = ev.relay.id }) end,\n"
    "  left = function(ev) end,\n"
    "  drop = function(ev) return ev.reason == 'new_flow' and { target = target } or nil end,\n"
    "  commands = {\n"
    "    aim = function(where) target = where return 'aimed' end,\n"
    "    ask = function(host) return assert(relay.resolve(host)) .. ' asked' end,\n"
    "    clear = function()\n"
    "      for _, r in ipairs(relay.relays()) do relay.close(r) end\n"
    "      return #relay.relays() + #relay.sessions() == 0 and 'cleared' or 'not yet'\n"
    "    end,\n"
    "  },\n"
    "}\n";

struct scene {
    struct host h;
    char dir[64], config[96], policy[96], api[96];
    int echo; /* what `target` names */
    unsigned patience_ms;
    char text[1 << 16]; /* the last answer */
};

/* ---- talking ----------------------------------------------------------------------------- */

/* Turns until the answer has `mark` in it; false when the other side ends or patience does. */
static bool hear(struct scene *s, int fd, const char *mark)
{
    uint64_t until = test_now_ms() + s->patience_ms;
    size_t n = 0;

    s->text[0] = 0;
    do {
        ssize_t k = recv(fd, s->text + n, sizeof s->text - 1 - n, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN)) {
            return false;
        }
        n += k > 0 ? (size_t)k : 0;
        s->text[n] = 0;
        if (strstr(s->text, mark)) {
            return true;
        }
        turn(&s->h);
    } while (test_now_ms() < until);
    return false;
}

static bool say(struct scene *s, int fd, const char *text, const char *mark)
{
    uint64_t until = test_now_ms() + s->patience_ms;

    while (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN && errno != ENOTCONN) {
            return false;
        }
        turn(&s->h);
        if (test_now_ms() > until) {
            return false;
        }
    }
    return hear(s, fd, mark);
}

static bool post(struct scene *s, const char *path, const char *body, const char *mark)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    char request[512];
    bool is_right;

    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", s->api);
    REQUIRE_EQ(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    snprintf(request, sizeof request,
             "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    is_right = say(s, fd, request, mark);
    close(fd);
    return is_right;
}

static bool call(struct scene *s, const char *verb, const char *argument, const char *mark)
{
    char body[256];

    snprintf(body, sizeof body, "{\"policy\":\"mine\",\"verb\":\"%s\",\"args\":[\"%s\"]}", verb,
             argument);
    return post(s, "/v1/call", body, mark);
}

/* ---- steps ------------------------------------------------------------------------------- */

struct player {
    int tcp, udp;
    char oid[128];
};

/* A socket that hears everybody. */
static int udp_open(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    REQUIRE(fd >= 0);
    REQUIRE_EQ(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

static void send_to(int fd, uint16_t port, const char *text)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    REQUIRE_EQ(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&sa, sizeof sa),
               (ssize_t)strlen(text));
}

static bool join(struct scene *s, struct player *p)
{
    char pid[512];
    const char *at;

    p->tcp = client_open(SOCK_STREAM, port_of(&s->h, "command="));
    p->udp = udp_open();
    if (!say(s, p->tcp, "register-host\n", "set-pid ") || !(at = strstr(s->text, "set-oid ")) ||
        sscanf(at, "set-oid %127s set-pid %511s", p->oid, pid) != 2) {
        return false;
    }
    send_to(p->udp, port_of(&s->h, "registrar="), pid);
    return hear(s, p->udp, "OK");
}

/* The port that a player is told to speak to, 0: none. */
static uint16_t told_port(struct scene *s, int fd, const char *line)
{
    const char *at = (line ? say(s, fd, line, "connect-relay ") : hear(s, fd, "connect-relay "))
                         ? strstr(s->text, "connect-relay ")
                         : NULL;

    return at && strncmp(at - (at > s->text ? 6 : 0), "error ", 6) != 0
               ? (uint16_t)strtoul(at + strlen("connect-relay "), NULL, 10)
               : 0;
}

/* Two players join and play through relays; a stranger who speaks to the host is let in. */
static bool step_play(struct scene *s)
{
    struct player host = {.tcp = -1, .udp = -1}, client = {.tcp = -1, .udp = -1};
    int stranger = -1;
    char line[160];
    uint16_t host_port = 0, client_port = 0;
    bool is_right = join(s, &host) && join(s, &client);

    if (is_right) {
        snprintf(line, sizeof line, "connect-relay %s\n", host.oid);
        host_port = told_port(s, client.tcp, line);
        client_port = host_port ? told_port(s, host.tcp, NULL) : 0;
    }
    is_right = host_port && client_port;
    if (is_right) {
        send_to(host.udp, client_port, "from the host");
        is_right =
            (send_to(client.udp, host_port, "from the client"), hear(s, host.udp, "client")) &&
            hear(s, client.udp, "from the host");
    }
    if (is_right) {
        stranger = udp_open();
        send_to(stranger, host_port, "from a stranger");
        is_right = hear(s, host.udp, "from a stranger");
    }
    int fds[] = {host.tcp, host.udp, client.tcp, client.udp, stranger};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return is_right;
}

/* A flow through the open port to a server behind it. */
static bool step_flow(struct scene *s)
{
    int client = udp_open();
    bool is_right;

    send_to(client, port_of(&s->h, "open="), "through and through");
    is_right = hear(s, s->echo, "through and through");
    close(client);
    return is_right;
}

static bool step_reload(struct scene *s)
{
    return post(s, "/v1/reload", "{}", " 200 ");
}

static bool step_command(struct scene *s)
{
    return post(s, "/v1/block", "{\"what\":\"203.0.113.7\",\"seconds\":60}", " 200 ") &&
           post(s, "/v1/unblock", "{\"what\":\"203.0.113.7\"}", " 200 ") &&
           call(s, "aim", "", "aimed");
}

static bool step_lookup(struct scene *s)
{
    return call(s, "ask", "127.1", "asked"); /* a name that every machine's resolver knows */
}

static bool step_metrics(struct scene *s)
{
    int fd = client_open(SOCK_STREAM, port_of(&s->h, "http="));
    bool is_right = say(s, fd, "GET /metrics HTTP/1.0\r\n\r\n", "\nmoonrelay_log_dropped_total ");

    close(fd);
    return is_right;
}

struct step {
    const char *name;
    bool (*run)(struct scene *s);
};

static const struct step steps[] = {
    {"play", step_play},       {"flow", step_flow},     {"reload", step_reload},
    {"command", step_command}, {"lookup", step_lookup}, {"metrics", step_metrics},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

/* ---- the scene --------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    REQUIRE(f != NULL);
    REQUIRE(fputs(text, f) >= 0);
    fclose(f);
}

static void aim(struct scene *s)
{
    struct sockaddr_in sa;
    socklen_t len = sizeof sa;
    char where[32];

    REQUIRE_EQ(getsockname(s->echo, (struct sockaddr *)&sa, &len), 0);
    snprintf(where, sizeof where, "127.0.0.1:%u", ntohs(sa.sin_port));
    REQUIRE(call(s, "aim", where, "aimed"));
}

static void scene_open(struct scene *s)
{
    char set_config[128], set_control[128];
    const char *sets[] = {set_config, set_control, "loglevel=silent", "udp_relay_timeout=60s"};

    memset(s, 0, sizeof *s);
    strcpy(s->dir, "/tmp/moonrelay-memory-XXXXXX");
    REQUIRE(mkdtemp(s->dir) != NULL);
    snprintf(s->config, sizeof s->config, "%s/moonrelay.lua", s->dir);
    snprintf(s->policy, sizeof s->policy, "%s/mine.lua", s->dir);
    snprintf(s->api, sizeof s->api, "%s/socket", s->dir);
    snprintf(set_config, sizeof set_config, "config=%s", s->config);
    snprintf(set_control, sizeof set_control, "control=%s", s->api);
    write_file(s->config, config);
    write_file(s->policy, policy);
    s->echo = udp_open();
    start(&s->h, sets, 4);
    s->patience_ms = UNHURRIED_MS;
}

static void scene_close(struct scene *s)
{
    if (s->h.rc == 0) {
        mr_server_destroy(s->h.server);
    }
    close(s->h.log);
    close(s->echo);
    unlink(s->config);
    unlink(s->policy);
    CHECK_EQ(rmdir(s->dir), 0);
}

/* Ends what a step left open, and waits until nothing is under way. */
static void settle(struct scene *s)
{
    s->patience_ms = UNHURRIED_MS;
    REQUIRE(TEST_UNTIL(call(s, "clear", "", "cleared")));
    for (int i = 0; i < 3; i++) {
        turn(&s->h);
    }
}

static void arm(enum seam seam, long n)
{
    if (seam == OURS_FROM_THEN_ON) {
        mr__alloc_fail_after(n);
    } else if (seam == OURS_ONCE) {
        mr__alloc_fail_once(n);
    } else {
        mr__state_fail_alloc(n + 1);
    }
}

/* Whether one has failed. */
static bool disarm(enum seam seam)
{
    bool has_failed = seam == LUA_ONCE ? !mr__state_will_fail() : mr__alloc_failures() > 0;

    mr__alloc_fail_after(-1);
    mr__state_fail_alloc(0);
    return has_failed;
}

static long next_place(long n)
{
    return n < SWEPT_ALL ? n + 1 : n + n / 8;
}

/* What a step does without a fault; nobody and nothing of it stays. */
static void try_plainly(struct scene *s, const struct step *step)
{
    settle(s);
    aim(s);
    if (!step->run(s)) {
        FAIL("%s does not work: %s", step->name, s->text);
        TEST_OR_END(false);
    }
    settle(s);
}

static long sweep(const struct step *step, enum seam seam)
{
    struct scene *s = malloc(sizeof *s);
    long failed = 0;

    REQUIRE(s != NULL);
    scene_open(s);
    CHECK_STR(s->h.err.text, "");
    REQUIRE_EQ(s->h.rc, 0);
    try_plainly(s, step);
    for (long n = 0;; n = next_place(n)) {
        s->patience_ms = PATIENCE_MS;
        arm(seam, n);
        step->run(s);
        if (!disarm(seam)) {
            break;
        }
        failed++;
        try_plainly(s, step);
    }
    printf("# %s: %ld failures\n", step->name, failed);
    scene_close(s);
    free(s);
    return failed;
}

/* ---- tests ------------------------------------------------------------------------------- */

static void sweep_all(enum seam seam)
{
    long before = mr__alloc_live(), failed = 0;

    for (size_t i = 0; i < STEPS; i++) {
        failed += sweep(&steps[i], seam);
    }
    CHECK_GT(failed, 50);
    CHECK_EQ(mr__alloc_live(), before);
}

TEST(a_step_without_memory_from_any_allocation_on_is_refused_and_the_next_works)
{
    sweep_all(OURS_FROM_THEN_ON);
}

TEST(a_step_without_memory_for_one_allocation_is_refused_and_the_next_works)
{
    sweep_all(OURS_ONCE);
}

TEST(a_step_whose_scripts_get_no_memory_once_is_refused_and_the_next_works)
{
    sweep_all(LUA_ONCE);
}

/* With policies, a port of their own and a control socket, which a plain start has not. */
TEST(a_start_without_memory_for_one_allocation_says_so_or_serves)
{
    long before = mr__alloc_live();

    for (enum seam seam = OURS_ONCE; seam <= LUA_ONCE; seam++) {
        bool has_failed = true;
        long failed = 0;
        for (long n = 0; has_failed; n = next_place(n)) {
            struct scene *s = malloc(sizeof *s);
            REQUIRE(s != NULL);
            arm(seam, n);
            scene_open(s);
            has_failed = disarm(seam);
            failed += has_failed;
            if (s->h.rc == 0) {
                CHECK(step_metrics(s));
            } else {
                CHECK(s->h.err.text[0] != 0);
                CHECK(strchr(s->h.err.text, '\n') == NULL);
            }
            scene_close(s);
            free(s);
            CHECK_EQ(mr__alloc_live(), before);
        }
        CHECK_GT(failed, 20);
    }
}

TEST_MAIN(TEST_CASE(a_start_without_memory_for_one_allocation_says_so_or_serves),
          TEST_CASE(a_step_without_memory_from_any_allocation_on_is_refused_and_the_next_works),
          TEST_CASE(a_step_without_memory_for_one_allocation_is_refused_and_the_next_works),
          TEST_CASE(a_step_whose_scripts_get_no_memory_once_is_refused_and_the_next_works))
