/* SPDX-License-Identifier: MIT */
/*
 * See banner.h. Warnings are about what the machine is, not about what was asked: those
 * come with the settings.
 */
#include "server/banner.h"

#include "base/alloc.h"
#include "control/process.h"
#include "engine/moonrelay.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum {
    PORT_TEXT_MAX = 12,       /* "65535-65535," */
    PORT_INDEXES_MAX = 65536, /* of an engine */
    RULE_MAX = 480, /* characters of one firewall rule; what a log record holds of a field */
};

void mr__banner_warn(const struct banner *b, const char *text)
{
    mr__log(b->log, MR_LOG_WARN, "start", text, NULL, 0);
    if (b->warning_fd >= 0) {
        dprintf(b->warning_fd, "moonrelay: warning: %s\n", text);
    }
}

__attribute__((format(printf, 2, 3))) static void warn(const struct banner *b, const char *format,
                                                       ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mr__banner_warn(b, text);
}

/* ---- ports as text ----------------------------------------------------------------------- */

/* Sorted ports as "1-3,7". NULL: out of memory. */
static char *format_ranges(const uint16_t *ports, size_t n)
{
    char *text = mr__alloc(n + 1, PORT_TEXT_MAX);
    size_t at = 0;

    for (size_t i = 0, last; text && i < n; i = last + 1) {
        const char *comma = at > 0 ? "," : "";
        for (last = i; last + 1 < n && ports[last + 1] <= ports[last] + 1; last++) {
        }
        if (ports[last] == ports[i]) {
            at += (size_t)sprintf(text + at, "%s%u", comma, ports[i]);
        } else {
            at += (size_t)sprintf(text + at, "%s%u-%u", comma, ports[i], ports[last]);
        }
    }
    return text;
}

static int compare_ports(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

char *mr__banner_relay_ranges(struct mr *mr)
{
    struct mr_stats stats;
    uint16_t *ports;
    char *text;
    size_t n = 0;

    if (mr_get_stats(mr, &stats, sizeof stats) < 0) {
        return NULL;
    }
    ports = mr__alloc(stats.ports + 1, sizeof *ports);
    if (!ports) {
        return NULL;
    }
    /* Closed ones leave gaps between the indexes. */
    for (uint32_t i = 0; n < stats.ports && i < PORT_INDEXES_MAX; i++) {
        struct mr_port_info info;
        if (mr_port_info(mr, i, &info) == 0 && !(info.flags & MR_PORT_OPEN)) {
            ports[n++] = info.local.port;
        }
    }
    qsort(ports, n, sizeof *ports, compare_ports);
    text = format_ranges(ports, n);
    mr__free(ports);
    return text;
}

/* ---- warnings about the machine ---------------------------------------------------------- */

/* The kernel's own list of ports that it hands to nobody; empty when it cannot be read. */
static void read_reserved(struct port_list *out)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_reserved_ports", "re");
    char text[4096];
    const char *why;
    size_t n;

    *out = (struct port_list){.n = 0};
    if (!f) {
        return;
    }
    n = fread(text, 1, sizeof text, f);
    fclose(f);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) {
        n--;
    }
    if (n > 0) {
        (void)mr__parse_ports(text, n, out, &why);
    }
}

void mr__banner_warn_ephemeral(const struct banner *b)
{
    const struct port_list *list = &b->settings->udp_relay_ports;
    uint16_t *inside = mr__alloc(list->n + 1, sizeof *inside);
    struct port_list reserved;
    uint16_t first, last;
    size_t n = 0;

    if (!inside || mr__process_ephemeral_ports(&first, &last) < 0) {
        mr__free(inside);
        return;
    }
    read_reserved(&reserved);
    for (size_t i = 0; i < list->n; i++) {
        uint16_t port = list->ports[i];
        if (port >= first && port <= last &&
            !(reserved.n > 0 &&
              bsearch(&port, reserved.ports, reserved.n, sizeof port, compare_ports))) {
            inside[n++] = port;
        }
    }
    char *text = n > 0 ? format_ranges(inside, n) : NULL;
    if (text) {
        warn(b,
             "relay ports %.200s lie in the kernel's range of ephemeral ports (%u-%u): another "
             "program may hold one when we start; sysctl -w "
             "net.ipv4.ip_local_reserved_ports=%.200s keeps them free",
             text, first, last, text);
    }
    mr__free(text);
    mr__free(inside);
    mr__port_list_deinit(&reserved);
}

/* Networks that are kept for examples: nobody is reached there. */
static bool is_documentation(const struct mr_addr *a)
{
    static const uint8_t v4[3][3] = {{192, 0, 2}, {198, 51, 100}, {203, 0, 113}};
    static const uint8_t v6[4] = {0x20, 0x01, 0x0d, 0xb8};
    bool is = a->family == 6 && memcmp(a->ip, v6, sizeof v6) == 0;

    for (int i = 0; i < 3; i++) {
        is = is || (a->family == 4 && memcmp(a->ip, v4[i], sizeof v4[i]) == 0);
    }
    return is;
}

static bool is_public(const struct mr_addr *a)
{
    return !is_documentation(a) &&
           !(mr_addr_classify(a) & (MR_ADDR_UNSPECIFIED | MR_ADDR_LOOPBACK | MR_ADDR_PRIVATE |
                                    MR_ADDR_LINK_LOCAL | MR_ADDR_MULTICAST | MR_ADDR_BROADCAST));
}

/* Whether this machine itself has an address that the internet reaches. Negative: it cannot be
 * asked. */
static int has_public_interface(void)
{
    uv_interface_address_t *list;
    int n, rc = uv_interface_addresses(&list, &n);
    bool found = false;

    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < n && !found; i++) {
        char text[MR_ADDR_TEXT_MAX];
        struct mr_addr a;
        int family = ((const struct sockaddr *)&list[i].address)->sa_family;

        if ((family == AF_INET ? uv_ip4_name(&list[i].address.address4, text, sizeof text)
                               : uv_ip6_name(&list[i].address.address6, text, sizeof text)) == 0 &&
            mr_addr_parse_ip(&a, text, strlen(text), NULL) == MR_ADDR_OK) {
            found = is_public(&a);
        }
    }
    uv_free_interface_addresses(list, n);
    return found;
}

void mr__banner_warn_addresses(const struct banner *b, const struct mr_addr *udp_host)
{
    const struct settings_values *v = b->settings;
    unsigned class = mr_addr_classify(udp_host);
    int is_public_here = class & MR_ADDR_UNSPECIFIED ? has_public_interface() : 1;

    if (is_public_here < 0) {
        warn(b,
             "the addresses and routes of this machine cannot be asked (netlink): %s; its own "
             "ports are not recognized there, and no stranger is served who has a private or "
             "loopback address",
             uv_strerror(is_public_here));
    }
    if (v->public_address && *v->public_address) {
        return;
    }
    if (class & (MR_ADDR_PRIVATE | MR_ADDR_LINK_LOCAL)) {
        warn(b,
             "udp_host %s is a private address and public_address is not set: players on the "
             "internet cannot reach a relay there; set public_address to the address they use",
             v->udp_host);
    } else if (is_public_here == 0) {
        warn(b, "no public address known: this machine has private addresses only and "
                "public_address is not set; set it to the address players use");
    }
}

void mr__banner_warn_ports(const struct banner *b, const struct port_report *report)
{
    if (report->opened < report->asked) {
        char at[MR_ADDR_TEXT_MAX];
        mr_addr_format(&report->first_failed, at, sizeof at);
        warn(b, "%zu of %zu relay ports are left out, the first is %s/udp: %s",
             report->asked - report->opened, report->asked, at, mr_strerror(report->first_error));
    }
    if (report->clamped_rcvbuf > 0) {
        warn(b,
             "receive buffers are %u bytes, not the %u of udp_buffer: a burst may be lost; sysctl "
             "-w net.core.rmem_max=%u net.core.wmem_max=%u (or CAP_NET_ADMIN) gives all",
             report->clamped_rcvbuf, b->settings->udp_buffer, b->settings->udp_buffer,
             b->settings->udp_buffer);
    }
}

/* ---- what it is -------------------------------------------------------------------------- */

char *mr__banner_open_ports(const struct service *service)
{
    struct open_port_info info;
    size_t n = 0, at = 0;
    char *text;

    while (mr__service_front(service, n, &info)) {
        n++;
    }
    text = mr__alloc(n + 1, MR_ADDR_TEXT_MAX + 1);
    for (size_t i = 0; text && i < n && mr__service_front(service, i, &info); i++) {
        text[at] = ',';
        at += i > 0;
        at += mr_addr_format(&info.local, text + at, MR_ADDR_TEXT_MAX);
    }
    return text;
}

char *mr__banner_endpoints(const struct control_endpoints *at, const char *ranges, const char *open)
{
    char command[MR_ADDR_TEXT_MAX], registrar[MR_ADDR_TEXT_MAX], http[MR_ADDR_TEXT_MAX];
    size_t cap = 4 * MR_ADDR_TEXT_MAX + strlen(ranges) + strlen(open);
    char *text = mr__alloc(1, cap);

    mr_addr_format(&at->command, command, sizeof command);
    mr_addr_format(&at->registrar, registrar, sizeof registrar);
    mr_addr_format(&at->http, http, sizeof http);
    if (text) {
        snprintf(text, cap, "command=%s registrar=%s http=%s relay=%s%s%s", command, registrar,
                 http, ranges, *open ? " open=" : "", open);
    }
    return text;
}

static void say_listens(const struct banner *b, const char *what, const char *rule,
                        const struct mr_addr *at)
{
    char text[MR_ADDR_TEXT_MAX];

    mr_addr_format_ip(at, text, sizeof text);
    MR_LOG(b->log, MR_LOG_INFO, "start", "listening", LOG_STR("for", what), LOG_STR("rule", rule),
           LOG_STR("address", text));
}

/* A rule is pasted into a firewall, so ranges with many gaps become several records and are not
 * cut. */
static void say_relays(const struct banner *b, const char *ranges, const struct mr_addr *at)
{
    char rule[RULE_MAX + sizeof "/udp"];

    while (*ranges != '\0') {
        size_t n = strlen(ranges);

        if (n > RULE_MAX) {
            for (n = RULE_MAX; n > 1 && ranges[n] != ','; n--) {
            }
        }
        snprintf(rule, sizeof rule, "%.*s/udp", (int)n, ranges);
        say_listens(b, "relays", rule, at);
        ranges += n;
        ranges += *ranges == ',';
    }
}

void mr__banner_listening(const struct banner *b, const struct control_endpoints *at,
                          const char *ranges)
{
    char rule[32];

    snprintf(rule, sizeof rule, "%u/tcp", at->command.port);
    say_listens(b, "commands", rule, &at->command);
    snprintf(rule, sizeof rule, "%u/udp", at->registrar.port);
    say_listens(b, "registrar", rule, &at->registrar);
    snprintf(rule, sizeof rule, "%u/tcp", at->http.port);
    say_listens(b, "http", rule, &at->http);
    say_relays(b, ranges, &at->registrar); /* the host of both is udp_host */
}

void mr__banner_open(const struct banner *b, const struct service *service)
{
    struct open_port_info info;
    char rule[32];

    for (size_t i = 0; mr__service_front(service, i, &info); i++) {
        snprintf(rule, sizeof rule, "%u/udp", info.local.port);
        say_listens(b, "everybody", rule, &info.local);
    }
}

void mr__banner_policies(const struct banner *b, const struct policies *policies)
{
    char text[1024] = "";
    size_t n = 0;

    for (size_t i = 0; i < mr__policies_count(policies) && n < sizeof text; i++) {
        struct policy_info p;
        mr__policies_info(policies, i, &p);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s", i > 0 ? "," : "", p.name,
                              p.is_shadow ? "(shadow)" : "");
    }
    MR_LOG(b->log, MR_LOG_INFO, "start", "policies", LOG_STR("chain", n > 0 ? text : "none"));
}

void mr__banner_ready(const struct banner *b, const struct control_endpoints *at,
                      const char *ranges, const char *open, const char *endpoints)
{
    char command[MR_ADDR_TEXT_MAX], registrar[MR_ADDR_TEXT_MAX], http[MR_ADDR_TEXT_MAX];
    size_t cap = 2 * strlen(endpoints) + 1024, n;
    struct timespec now;
    char *line;

    if (b->log->level >= MR_LOG_SILENT) {
        return;
    }
    line = mr__alloc(1, cap);
    if (!line) {
        return;
    }
    n = (size_t)snprintf(line, cap, "ready %s\n", endpoints);
    if (b->log->format == MR_LOG_JSON) {
        char *text = mr__strndup(line, n - 1);
        mr_addr_format(&at->command, command, sizeof command);
        mr_addr_format(&at->registrar, registrar, sizeof registrar);
        mr_addr_format(&at->http, http, sizeof http);
        const struct log_field fields[] = {LOG_STR("command", command),
                                           LOG_STR("registrar", registrar), LOG_STR("http", http),
                                           LOG_STR("relay", ranges), LOG_STR("open", open)};
        clock_gettime(CLOCK_REALTIME, &now);
        n = mr__log_format(line, cap, MR_LOG_JSON,
                           (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
                           MR_LOG_INFO, "server", text ? text : "ready", fields,
                           sizeof fields / sizeof fields[0] - (*open ? 0 : 1));
        mr__free(text);
    }
    b->log->sink(b->log->user, MR_LOG_INFO, line, n);
    mr__free(line);
}
