/* meet.c - how ranks find each other: rank 0 listens, the others connect and show the token. */
#include "runtime/comm/control_state.h"
#include "estimator/base/checked.h"
#include "estimator/base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HELLO_MS = 2000, /* limit for a new connection to send its hello */
    TRY_MS = 2000,   /* limit for one connect */
    AGAIN_MS = 50,   /* between two */
    STRANGERS = 32,  /* that may wait to be heard at one time */
    IN_OF_RANK = 512 /* largest message from a rank to rank 0 */
};
_Static_assert(sizeof(struct pl_hello) <= IN_OF_RANK, "a greeting");
_Static_assert(sizeof(struct pl_loss) <= IN_OF_RANK, "a farewell");
_Static_assert(PL_AGREE_MOST <= IN_OF_RANK, "a part");
_Static_assert(PL_RANKS_MAX *PL_HOST_NAME <= PL_ROUND_MOST, "the names of all hosts");

pl_err pl_token_make(char out[PL_TOKEN_MOST + 1], struct pl_diag *d) {
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "no random numbers for the token of the job: %s",
                           strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(out + 2 * i, 3, "%02x", random[i]);
    return PL_ERR_OK;
}

/* ---- addresses ---- */

static pl_err resolve(const char *address, uint16_t port, bool to_listen, struct addrinfo **out,
                      struct pl_diag *d) {
    char service[8];
    struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%u", port);
    want.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
    int e = getaddrinfo(address, service, &want, out);
    if (e == 0) return PL_ERR_OK;
    if (e == EAI_MEMORY) return pl_host_oom(d, "the address of rank 0");
    return pl_diag_set(d, PL_ERR_COMM_INIT, "the address of rank 0, %s: %s",
                       address ? address : "any", gai_strerror(e));
}

static int listen_at(const struct addrinfo *at) {
    int one = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) return -1;
    /* A job that is started again at once finds connections of the one before at its port. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, PL_RANKS_MAX) == 0) return fd;
    int kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) != 0) return 0;
    if (at.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&at)->sin6_port);
    return ntohs(((struct sockaddr_in *)&at)->sin_port);
}

/* An address of this machine that others may know it by; what it calls itself is often known to
 * itself alone. */
static void own_address(char out[PL_HOST_NAME]) {
    struct ifaddrs *all = NULL;
    out[0] = 0;
    if (getifaddrs(&all) == 0)
        for (const struct ifaddrs *i = all; i && !out[0]; i = i->ifa_next)
            if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK))
                (void)getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), out, PL_HOST_NAME, NULL,
                                  0, NI_NUMERICHOST);
    if (all) freeifaddrs(all);
    if (!out[0] && gethostname(out, PL_HOST_NAME) == 0) out[PL_HOST_NAME - 1] = 0;
}

pl_err pl_meeting_listen(struct pl_meeting *m, const struct pl_world *world, struct pl_diag *d) {
    struct addrinfo *all = NULL;
    bool near = world->local_size == world->size;
    if (!m->address[0] && near) strcpy(m->address, "127.0.0.1");
    /* The name of a machine is often 127.0.1.1 on that machine: others would not reach it. */
    PL_TRY(resolve(near ? m->address : NULL, m->port, true, &all, d));
    for (const struct addrinfo *at = all; at && m->listener < 0; at = at->ai_next)
        m->listener = listen_at(at);
    int why = errno;
    freeaddrinfo(all);
    if (m->listener < 0)
        return pl_diag_set(d, PL_ERR_COMM_INIT, "rank 0 cannot listen at %s:%u: %s",
                           near ? m->address : "any address", m->port, strerror(why));
    if (!m->address[0]) own_address(m->address);
    m->port = port_of(m->listener);
    return PL_ERR_OK;
}

void pl_meeting_finish(struct pl_meeting *m) {
    if (m->listener >= 0) close(m->listener);
    m->listener = -1;
}

/* ---- rank 0 ---- */

struct stranger {
    struct pl_link link;
    uint64_t until_ms;
};

struct hall {
    struct pl_control *c;
    const char *token;
    struct stranger strangers[STRANGERS];
    uint32_t here;  /* ranks, with rank 0 */
    uint32_t ended; /* a rank of which the launcher said so; 0: none */
};

/* Compares all of them, so that the time it takes tells a stranger nothing. */
static bool same_token(const char a[PL_TOKEN_MOST], const char b[PL_TOKEN_MOST]) {
    unsigned char differs = 0;
    for (int i = 0; i < PL_TOKEN_MOST; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

static void set_up(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void put_message(struct pl_link *l, enum pl_message kind, const void *body, uint32_t bytes) {
    const struct pl_head head = {.magic = PL_MAGIC, .kind = (uint32_t)kind, .bytes = bytes};
    (void)pl_link_put(l, &head, body); /* nothing else is on its way yet */
    (void)pl_link_flush(l);
}

static void refuse_rank(struct pl_link *l, const char *why) {
    put_message(l, PL_MESSAGE_REFUSE, why, (uint32_t)strlen(why));
    pl_link_finish(l);
}

/* The oldest goes where there is no room: that many silent ones are not ranks. */
static pl_err let_in(struct hall *h, int fd, struct pl_diag *d) {
    struct stranger *at = &h->strangers[0];
    for (int i = 0; i < STRANGERS && at->link.fd >= 0; i++)
        if (h->strangers[i].link.fd < 0 || h->strangers[i].until_ms < at->until_ms)
            at = &h->strangers[i];
    pl_link_finish(&at->link);
    set_up(fd);
    at->until_ms = pl_now_ms() + HELLO_MS;
    return pl_link_init(&at->link, fd, IN_OF_RANK, d);
}

static bool read_hello(const struct hall *h, const struct pl_head *head, const void *body,
                       struct pl_hello *out) {
    char token[PL_TOKEN_MOST] = "";
    const bool known = head->kind == PL_MESSAGE_HELLO || head->kind == PL_MESSAGE_ENDED;
    if (!known || head->bytes != sizeof *out) return false;
    memcpy(out, body, sizeof *out);
    memcpy(token, h->token, strlen(h->token));
    out->host[PL_HOST_NAME - 1] = 0;
    return same_token(out->token, token);
}

static void take_hello(struct hall *h, struct stranger *s, const struct pl_head *head,
                       const void *body) {
    struct pl_hello hello;
    struct pl_control *c = h->c;
    char why[PL_WHY];
    if (!read_hello(h, head, body, &hello)) {
        pl_link_finish(&s->link);
        return;
    }
    if (hello.size != c->world.size || hello.rank == 0 || hello.rank >= c->world.size) {
        snprintf(why, sizeof why, "rank %u of %u came to a job of %u ranks", hello.rank, hello.size,
                 c->world.size);
        refuse_rank(&s->link, why);
        return;
    }
    struct pl_link *own = &c->links[hello.rank];
    if (head->kind == PL_MESSAGE_ENDED) {
        h->ended = hello.rank;
        memcpy(c->hosts[hello.rank], hello.host, PL_HOST_NAME);
        pl_link_finish(&s->link);
        return;
    }
    if (own->fd >= 0) {
        snprintf(why, sizeof why, "there are two of rank %u", hello.rank);
        refuse_rank(&s->link, why);
        return;
    }
    memcpy(c->hosts[hello.rank], hello.host, PL_HOST_NAME);
    pl_link_take(&s->link);
    *own = s->link;
    s->link = (struct pl_link){.fd = -1};
    h->here++;
}

static void hear(struct hall *h, struct stranger *s) {
    struct pl_head head;
    const void *body;
    if (s->link.fd < 0) return;
    enum pl_link_got got = pl_link_get(&s->link, &head, &body);
    if (got == PL_LINK_MESSAGE)
        take_hello(h, s, &head, body);
    else if (got != PL_LINK_NOTHING || pl_now_ms() > s->until_ms)
        pl_link_finish(&s->link);
}

/* Nothing is to be said yet by a rank that is here: it is gone, or none of ours. */
static pl_err watch(struct hall *h, uint32_t rank, struct pl_diag *d) {
    struct pl_head head;
    const void *body;
    struct pl_link *l = &h->c->links[rank];
    const bool quiet = l->fd < 0 || pl_link_get(l, &head, &body) == PL_LINK_NOTHING;
    if (quiet && h->ended != rank) return PL_ERR_OK;
    pl_link_finish(l);
    return pl_diag_set(d, PL_ERR_COMM_INIT, "rank %u on %s ended before all ranks were there", rank,
                       h->c->hosts[rank]);
}

static pl_err hear_all(struct hall *h, int listener, struct pl_diag *d) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        PL_TRY(let_in(h, fd, d));
    for (int i = 0; i < STRANGERS; i++)
        hear(h, &h->strangers[i]);
    for (uint32_t r = 1; r < h->c->world.size; r++)
        PL_TRY(watch(h, r, d));
    return PL_ERR_OK;
}

static void wait_for_any(const struct hall *h, int listener, uint64_t until_ms) {
    struct pollfd fds[1 + STRANGERS + PL_RANKS_MAX];
    nfds_t n = 0;
    uint64_t now = pl_now_ms();
    fds[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < STRANGERS; i++)
        if (h->strangers[i].link.fd >= 0)
            fds[n++] = (struct pollfd){.fd = h->strangers[i].link.fd, .events = POLLIN};
    for (uint32_t r = 1; r < h->c->world.size; r++)
        if (h->c->links[r].fd >= 0)
            fds[n++] = (struct pollfd){.fd = h->c->links[r].fd, .events = POLLIN};
    (void)poll(fds, n, (int)pl_u64_min(until_ms > now ? until_ms - now : 0, HELLO_MS));
}

/* The numbers of those that did not come, and how many they are. */
static uint32_t list_missing(const struct hall *h, struct pl_text *names) {
    uint32_t missing = 0;
    for (uint32_t r = 1; r < h->c->world.size; r++)
        if (h->c->links[r].fd < 0) pl_text_addf(names, "%s%u", missing++ ? ", " : "", r);
    return missing;
}

static pl_err say_missing(const struct hall *h, struct pl_diag *d) {
    char room[PL_WHY];
    struct pl_text names = PL_TEXT_FIXED(room);
    const uint32_t missing = list_missing(h, &names);
    pl_err err =
        pl_diag_set(d, PL_ERR_COMM_INIT, "%u of %u ranks did not come within %u s: %s", missing,
                    h->c->world.size, pl_meeting_ms(h->c->timeout_ms) / 1000, pl_text_str(&names));
    pl_diag_hint(d, "see what those ranks say; ranks that start later than that need a larger "
                    "`comm_timeout_seconds`");
    return err;
}

static void tell(const struct pl_meeting *m, const char *line) {
    if (m->teller) m->teller->tell(m->teller->ctx, line);
}

static void tell_missing(const struct hall *h, const struct pl_meeting *m) {
    char room[PL_WHY], line[PL_WHY + 64];
    struct pl_text names = PL_TEXT_FIXED(room);
    const uint32_t missing = list_missing(h, &names);
    snprintf(line, sizeof line, "%u of %u ranks are missing after %u s: %s", missing,
             h->c->world.size, h->c->timeout_ms / 1000, pl_text_str(&names));
    tell(m, line);
}

static pl_err receive_all(struct pl_control *c, const struct pl_meeting *m, struct pl_diag *d) {
    struct hall h = {.c = c, .token = m->token, .here = 1};
    struct pl_diag own = {0}; /* also where the caller wants none: the others are told */
    uint64_t until_ms = pl_now_ms() + pl_meeting_ms(c->timeout_ms);
    uint64_t tell_ms = pl_now_ms() + c->timeout_ms; /* UINT64_MAX: it was told */
    pl_err err = PL_ERR_OK;
    for (int i = 0; i < STRANGERS; i++)
        h.strangers[i].link.fd = -1;
    /* A rank that comes soon after a failure is told of it as well. */
    while (h.here < c->world.size && pl_now_ms() < until_ms) {
        wait_for_any(&h, m->listener, pl_u64_min(until_ms, tell_ms));
        pl_err now = hear_all(&h, m->listener, err == PL_ERR_OK ? &own : NULL);
        if (pl_now_ms() >= tell_ms && err == PL_ERR_OK && h.here < c->world.size) {
            tell_missing(&h, m);
            tell_ms = UINT64_MAX;
        }
        if (now == PL_ERR_OK || err != PL_ERR_OK) continue;
        err = now;
        until_ms = pl_u64_min(until_ms, pl_now_ms() + HELLO_MS);
    }
    for (int i = 0; i < STRANGERS; i++)
        pl_link_finish(&h.strangers[i].link);
    if (err == PL_ERR_OK && h.here < c->world.size) err = say_missing(&h, &own);
    for (uint32_t r = 1; r < c->world.size; r++)
        if (err != PL_ERR_OK)
            refuse_rank(&c->links[r], own.message);
        else
            put_message(&c->links[r], PL_MESSAGE_WELCOME, c->hosts, c->world.size * PL_HOST_NAME);
    if (err == PL_ERR_OK) return err;
    pl_diag_set(d, err, "%s", own.message);
    if (own.hint[0]) pl_diag_hint(d, "%s", own.hint);
    return err;
}

/* ---- the others ---- */

static uint64_t left_ms(uint64_t until_ms) {
    uint64_t now = pl_now_ms();
    return until_ms > now ? until_ms - now : 0;
}

static int connect_to(const struct addrinfo *at, uint64_t until_ms) {
    int e = 0;
    socklen_t bytes = sizeof e;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        e = errno;
        if (e == EINPROGRESS && poll(&p, 1, (int)pl_u64_min(left_ms(until_ms), TRY_MS)) == 1)
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &bytes);
        else if (e == EINPROGRESS)
            e = ETIMEDOUT;
    }
    if (e == 0) return fd;
    close(fd);
    errno = e;
    return -1;
}

static void say_hello(struct pl_link *l, enum pl_message kind, uint32_t rank, uint32_t size,
                      const char *token, const char *host) {
    struct pl_hello hello = {.rank = rank, .size = size};
    memcpy(hello.token, token, strlen(token));
    memcpy(hello.host, host, PL_HOST_NAME);
    put_message(l, kind, &hello, sizeof hello);
}

/* Waits until rank 0 says that all are there. False: it ended the connection, or said nothing. */
static bool be_welcomed(struct pl_control *c, uint64_t until_ms, char why[PL_WHY], bool *refused) {
    struct pl_head head;
    const void *body;
    struct pollfd p = {.fd = c->links[0].fd, .events = POLLIN};
    enum pl_link_got got;
    while ((got = pl_link_get(&c->links[0], &head, &body)) == PL_LINK_NOTHING && left_ms(until_ms))
        (void)poll(&p, 1, (int)left_ms(until_ms));
    bool whole = got == PL_LINK_MESSAGE;
    *refused = whole && head.kind == PL_MESSAGE_REFUSE;
    if (*refused) snprintf(why, PL_WHY, "%.*s", (int)head.bytes, (const char *)body);
    if (whole && head.kind == PL_MESSAGE_WELCOME &&
        head.bytes == c->world.size * (uint32_t)PL_HOST_NAME) {
        memcpy(c->hosts, body, head.bytes);
        for (uint32_t r = 0; r < c->world.size; r++)
            c->hosts[r][PL_HOST_NAME - 1] = 0;
        pl_link_take(&c->links[0]);
        return true;
    }
    if (got == PL_LINK_NOTHING)
        snprintf(why, PL_WHY, "rank 0 took the connection and said nothing");
    else if (!*refused)
        snprintf(why, PL_WHY, "the connection was ended: the token may be another one");
    return false;
}

/* *met: there was a connection. */
static bool try_once(struct pl_control *c, const struct pl_meeting *m, uint64_t until_ms,
                     char why[PL_WHY], bool *met, bool *refused) {
    struct addrinfo *all = NULL;
    struct pl_diag d = {0};
    int fd = -1;
    *refused = false;
    if (resolve(m->address, m->port, false, &all, &d) != PL_ERR_OK) {
        snprintf(why, PL_WHY, "%.*s", PL_WHY - 1, d.message);
        return false;
    }
    for (const struct addrinfo *at = all; at && fd < 0; at = at->ai_next)
        fd = connect_to(at, until_ms);
    if (fd < 0) snprintf(why, PL_WHY, "%s", strerror(errno));
    freeaddrinfo(all);
    if (fd < 0) return false;
    set_up(fd);
    if (pl_link_init(&c->links[0], fd, PL_ROUND_MOST, &d) != PL_ERR_OK) {
        snprintf(why, PL_WHY, "%.*s", PL_WHY - 1, d.message);
        return false;
    }
    *met = true;
    say_hello(&c->links[0], PL_MESSAGE_HELLO, c->world.rank, c->world.size, m->token,
              c->hosts[c->world.rank]);
    /* Rank 0 began later, and says who is missing when its own time is over. */
    if (be_welcomed(c, until_ms + c->timeout_ms / 2, why, refused)) return true;
    pl_link_finish(&c->links[0]);
    return false;
}

static void tell_of_rank_0(const struct pl_control *c, const struct pl_meeting *m) {
    char line[PL_WHY];
    snprintf(line, sizeof line, "rank %u waits for rank 0 at %.200s:%u since %u s", c->world.rank,
             m->address, m->port, c->timeout_ms / 1000);
    tell(m, line);
}

static pl_err go_to_rank_0(struct pl_control *c, const struct pl_meeting *m, struct pl_diag *d) {
    char why[PL_WHY] = "", now[PL_WHY] = "";
    bool refused, ever_met = false;
    uint64_t until_ms = pl_now_ms() + pl_meeting_ms(c->timeout_ms);
    uint64_t tell_ms = pl_now_ms() + c->timeout_ms;
    do {
        bool met = false;
        if (try_once(c, m, until_ms, now, &met, &refused)) return PL_ERR_OK;
        if (refused) return pl_diag_set(d, PL_ERR_COMM_INIT, "%s", now);
        /* The outcome of a connection says more than that there is none any more. */
        if (met || !ever_met) memcpy(why, now, sizeof why);
        ever_met |= met;
        if (pl_now_ms() >= tell_ms) {
            tell_of_rank_0(c, m);
            tell_ms = UINT64_MAX;
        }
        (void)poll(NULL, 0, AGAIN_MS);
    } while (left_ms(until_ms));
    return pl_diag_set(d, PL_ERR_COMM_INIT, "rank %u did not reach rank 0 at %s:%u within %u s: %s",
                       c->world.rank, m->address, m->port, pl_meeting_ms(c->timeout_ms) / 1000,
                       why);
}

static void own_name(char out[PL_HOST_NAME]) {
    if (gethostname(out, PL_HOST_NAME) != 0) out[0] = 0;
    out[PL_HOST_NAME - 1] = 0;
}

pl_err pl_meet(struct pl_control *c, struct pl_meeting *m, struct pl_diag *d) {
    own_name(c->hosts[c->world.rank]);
    if (c->world.rank > 0) return go_to_rank_0(c, m, d);
    if (m->listener < 0) PL_TRY(pl_meeting_listen(m, &c->world, d));
    pl_err err = receive_all(c, m, d);
    pl_meeting_finish(m); /* who comes later finds nobody */
    return err;
}

/* ---- who starts the ranks ---- */

bool pl_meeting_tell_end(const struct pl_meeting *m, uint32_t rank, uint32_t size) {
    struct addrinfo *all = NULL;
    struct pl_link link = {.fd = -1};
    char host[PL_HOST_NAME] = "";
    if (resolve(m->address, m->port, false, &all, NULL) != PL_ERR_OK) return false;
    int fd = connect_to(all, pl_now_ms() + TRY_MS);
    freeaddrinfo(all);
    if (fd < 0) return false;
    own_name(host);
    bool ok = pl_link_init(&link, fd, IN_OF_RANK, NULL) == PL_ERR_OK;
    if (ok) say_hello(&link, PL_MESSAGE_ENDED, rank, size, m->token, host);
    pl_link_finish(&link);
    return ok;
}
