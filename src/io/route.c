/* SPDX-License-Identifier: MIT */
/*
 * Routes, asked of the kernel by rtnetlink(7). connect(2) of a UDP socket would tell as well, but
 * takes a port and then moves it from one chain of the kernel's table to another: whoever looks up
 * a port of the first chain in that moment follows it there, and does not find the socket that a
 * datagram is for. The datagram is lost and no socket counts it.
 * Start reading at mr__route_source().
 */
#include "io/route.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    uint8_t attributes[64]; /* RTA_DST and RTA_OIF */
};

enum { ANSWER_BYTES = 4096, SEQUENCE = 1 };

static void append(struct question *q, unsigned short type, const void *data, size_t n)
{
    struct rtattr *a = (void *)((uint8_t *)q + NLMSG_ALIGN(q->head.nlmsg_len));

    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(n);
    memcpy(RTA_DATA(a), data, n);
    q->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->head.nlmsg_len) + RTA_SPACE(n));
}

static unsigned address_bytes(const struct mr_addr *a)
{
    return a->family == 4 ? 4 : 16;
}

static struct question ask_for(const struct mr_addr *peer)
{
    struct question q = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof q.route),
                 .nlmsg_type = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = SEQUENCE},
        .route = {.rtm_family = peer->family == 4 ? AF_INET : AF_INET6,
                  .rtm_dst_len = (uint8_t)(8 * address_bytes(peer))},
    };

    append(&q, RTA_DST, peer->ip, address_bytes(peer));
    if (peer->scope_id)
        append(&q, RTA_OIF, &peer->scope_id, sizeof peer->scope_id);
    return q;
}

/* Some routes say by their type that there is none. */
static int refusal_of(unsigned type)
{
    switch (type) {
    case RTN_UNREACHABLE:
    case RTN_THROW:
        return -ENETUNREACH;
    case RTN_BLACKHOLE:
        return -EINVAL;
    case RTN_PROHIBIT:
        return -EACCES;
    default:
        return 0;
    }
}

static int read_route(struct nlmsghdr *head, const struct mr_addr *peer, struct mr_addr *source)
{
    const struct rtmsg *route = NLMSG_DATA(head);
    int left = (int)RTM_PAYLOAD(head), r = refusal_of(route->rtm_type);

    if (r < 0)
        return r;
    for (struct rtattr *a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type != RTA_PREFSRC || RTA_PAYLOAD(a) != address_bytes(peer))
            continue;
        *source = (struct mr_addr){.family = peer->family};
        memcpy(source->ip, RTA_DATA(a), address_bytes(peer));
        if (mr_addr_classify(source) & MR_ADDR_LINK_LOCAL)
            source->scope_id = peer->scope_id;
        return 0;
    }
    return -EADDRNOTAVAIL;
}

static int read_answer(struct nlmsghdr *head, size_t n, const struct mr_addr *peer,
                       struct mr_addr *source)
{
    const struct nlmsgerr *error = NLMSG_DATA(head);

    if (!NLMSG_OK(head, n) || head->nlmsg_seq != SEQUENCE)
        return -EPROTO;
    if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof *error))
        return error->error < 0 ? error->error : -EPROTO;
    if (head->nlmsg_type != RTM_NEWROUTE || head->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg)))
        return -EPROTO;
    return read_route(head, peer, source);
}

/* The kernel answers within send(2): there is nothing to wait for. */
static int exchange(int fd, const struct mr_addr *peer, struct mr_addr *source)
{
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct question q = ask_for(peer);
    union {
        struct nlmsghdr head;
        uint8_t bytes[ANSWER_BYTES];
    } answer;
    struct sockaddr_nl from = {0};
    socklen_t from_n = sizeof from;
    ssize_t n;

    if (sendto(fd, &q, q.head.nlmsg_len, 0, (const struct sockaddr *)&kernel, sizeof kernel) < 0)
        return -errno;
    n = recvfrom(fd, &answer, sizeof answer, MSG_DONTWAIT, (struct sockaddr *)&from, &from_n);
    if (n < 0)
        return -errno;
    if (from.nl_pid != 0) /* not the kernel's */
        return -EPROTO;
    return read_answer(&answer.head, (size_t)n, peer, source);
}

int mr__route_source(const struct mr_addr *peer, struct mr_addr *source)
{
    int fd, r;

    if (!peer->family)
        return -EINVAL;
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    r = exchange(fd, peer, source);
    close(fd);
    return r;
}
