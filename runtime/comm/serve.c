/* serve.c - the thread of the control channel: beats, parts of rounds, and who is lost. */
#include "runtime/comm/control_state.h"
#include "estimator/base/checked.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FAREWELL_MS = 1000 }; /* limit for the last messages to leave, and for the others to send
                                theirs */

static bool is_centre(const struct pl_control *c) {
    return c->world.rank == 0;
}

static uint32_t first_link(const struct pl_control *c) {
    return is_centre(c) ? 1 : 0;
}

/* ---- who is lost ---- */

static void put_loss(struct pl_control *c, const struct pl_loss *loss) {
    const struct pl_head head = {.magic = PL_MAGIC, .kind = PL_MESSAGE_LOST, .bytes = sizeof *loss};
    for (uint32_t i = first_link(c); i < c->n_links; i++)
        (void)pl_link_put(&c->links[i], &head, loss);
}

static void set_loss(struct pl_control *c, const struct pl_loss *loss) {
    pthread_mutex_lock(&c->lock);
    (void)pl_control_set_loss(c, loss);
    pthread_mutex_unlock(&c->lock);
}

static void lose(struct pl_control *c, uint32_t link, pl_err err, const char *why) {
    struct pl_loss loss = {.rank = is_centre(c) ? link : 0, .err = (uint32_t)err};
    snprintf(loss.why, sizeof loss.why, "%s", why);
    pl_link_finish(&c->links[link]);
    set_loss(c, &loss);
}

/* It finds the reason in its connection if it ever runs again. */
static void lose_silent(struct pl_control *c, uint32_t link) {
    char why[PL_WHY];
    snprintf(why, sizeof why, "was not heard of for %u s", c->timeout_ms / 1000);
    if (is_centre(c)) {
        struct pl_loss loss = {.rank = link, .err = PL_ERR_COMM_PEER_LOST};
        const struct pl_head head = {
            .magic = PL_MAGIC, .kind = PL_MESSAGE_LOST, .bytes = sizeof loss};
        snprintf(loss.why, sizeof loss.why, "%s", why);
        (void)pl_link_put(&c->links[link], &head, &loss);
        (void)pl_link_flush(&c->links[link]);
    }
    lose(c, link, PL_ERR_COMM_PEER_LOST, why);
}

/* ---- rounds ---- */

static void take_part(struct pl_control *c, uint32_t from, const struct pl_head *head,
                      const void *body) {
    struct pl_part *p = &c->parts[from];
    if (p->there || head->bytes > sizeof p->data) {
        lose(c, from, PL_ERR_COMM_PEER_LOST, "sent what belongs to no agreement");
        return;
    }
    *p = (struct pl_part){
        .there = true, .call = head->call, .bytes = head->bytes, .number = head->number};
    memcpy(p->data, body, head->bytes);
}

static const char *call_name(uint32_t call) {
    static const char *const names[] = {"agree", "broadcast", "barrier", "compare", "close"};
    return call < sizeof names / sizeof *names ? names[call] : "no known call";
}

/* True if the part fits the round; else records a loss of the rank that it came from. */
static bool part_fits(struct pl_control *c, uint32_t rank, const struct pl_round *r) {
    struct pl_loss loss = {.rank = rank, .err = PL_ERR_COMM_MISMATCH};
    const struct pl_part *p = &c->parts[rank];
    uint32_t expected = r->call == PL_CALL_BROADCAST ? 0 : r->bytes;
    if (p->number == c->number && p->call == (uint32_t)r->call && p->bytes == expected) return true;
    snprintf(loss.why, sizeof loss.why,
             "is at call %llu, %s of %u bytes, and rank 0 at call %llu, %s of %u",
             (unsigned long long)p->number, call_name(p->call), p->bytes,
             (unsigned long long)c->number, call_name((uint32_t)r->call), expected);
    (void)pl_control_set_loss(c, &loss);
    return false;
}

/* Writes the whole of a round from the parts of the others and the caller's own. */
static void compose(const struct pl_control *c, const struct pl_round *r, unsigned char *all) {
    if (r->bytes) memcpy(all, r->mine, r->bytes);
    if (r->call == PL_CALL_BROADCAST) return;
    for (uint32_t i = 1; i < c->world.size; i++)
        memcpy(all + (size_t)i * r->bytes, c->parts[i].data, r->bytes);
}

/* rank 0, with `lock` held. */
static void finish_round(struct pl_control *c) {
    const struct pl_round *r = c->round;
    unsigned char all[PL_ROUND_MOST];
    for (uint32_t i = 1; i < c->world.size; i++)
        if (!c->parts[i].there) return;
    for (uint32_t i = 1; i < c->world.size; i++)
        if (!part_fits(c, i, r)) return;
    compose(c, r, all);
    const struct pl_head head = {.magic = PL_MAGIC,
                                 .kind = PL_MESSAGE_WHOLE,
                                 .bytes = r->all_bytes,
                                 .call = (uint32_t)r->call,
                                 .number = c->number};
    for (uint32_t i = 1; i < c->world.size; i++) {
        (void)pl_link_put(&c->links[i], &head, all); /* the round before was read */
        c->parts[i].there = false;
    }
    if (r->all_bytes) memcpy(r->all, all, r->all_bytes);
    c->done = true;
    pthread_cond_broadcast(&c->moved);
}

static void send_part(struct pl_control *c) {
    const struct pl_round *r = c->round;
    const struct pl_head head = {.magic = PL_MAGIC,
                                 .kind = PL_MESSAGE_PART,
                                 .bytes = r->bytes,
                                 .call = (uint32_t)r->call,
                                 .number = c->number};
    (void)pl_link_put(&c->links[0], &head, r->mine);
    c->posted = true;
}

/* Advances the round that a caller waits for as far as possible. */
static void move_round(struct pl_control *c) {
    uint32_t left = 0;
    pthread_mutex_lock(&c->lock);
    if (c->round && !c->done && !atomic_load(&c->lost)) {
        for (uint32_t i = first_link(c); i < c->n_links && !left; i++)
            if (c->links[i].left && !c->parts[i].there) left = i + 1;
        if (!left && is_centre(c))
            finish_round(c);
        else if (!left && !c->posted)
            send_part(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (left) lose(c, left - 1, PL_ERR_COMM_PEER_LOST, "ended before the others");
}

static void take_whole(struct pl_control *c, const struct pl_head *head, const void *body) {
    char why[PL_WHY];
    pthread_mutex_lock(&c->lock);
    const struct pl_round *r = c->round;
    bool expected = r && c->posted && !c->done && head->number == c->number;
    bool same = expected && head->call == (uint32_t)r->call && head->bytes == r->all_bytes;
    uint32_t takes = expected ? r->all_bytes : 0;
    if (same) {
        if (head->bytes) memcpy(r->all, body, head->bytes);
        c->done = true;
        pthread_cond_broadcast(&c->moved);
    }
    pthread_mutex_unlock(&c->lock);
    if (!expected || same) return;
    snprintf(why, sizeof why, "gives %u bytes in call %llu, of which this rank takes %u",
             head->bytes, (unsigned long long)head->number, takes);
    lose(c, 0, PL_ERR_COMM_MISMATCH, why);
}

/* ---- messages ---- */

static void take_loss(struct pl_control *c, uint32_t link, const struct pl_head *head,
                      const void *body) {
    struct pl_loss loss;
    if (head->bytes != sizeof loss) {
        lose(c, link, PL_ERR_COMM_PEER_LOST, "sent what is no message");
        return;
    }
    memcpy(&loss, body, sizeof loss);
    loss.why[PL_WHY - 1] = 0;
    if (loss.rank >= c->world.size) loss.rank = is_centre(c) ? link : 0;
    if (loss.cause >= PL_ERR_COUNT) loss.cause = PL_ERR_OK;
    if (loss.err != PL_ERR_COMM_MISMATCH) loss.err = PL_ERR_COMM_PEER_LOST;
    pl_link_finish(&c->links[link]);
    c->links[link].left = true;
    set_loss(c, &loss);
}

static void take_leave(struct pl_control *c, uint32_t link) {
    pl_link_finish(&c->links[link]);
    c->links[link].left = true;
}

/* Handles messages that both sides may send, and those that only one may. */
static void take_message(struct pl_control *c, uint32_t link, const struct pl_head *head,
                         const void *body) {
    if (head->kind == PL_MESSAGE_LOST)
        take_loss(c, link, head, body);
    else if (head->kind == PL_MESSAGE_LEAVE)
        take_leave(c, link);
    else if (head->kind == PL_MESSAGE_PART && is_centre(c))
        take_part(c, link, head, body);
    else if (head->kind == PL_MESSAGE_WHOLE && !is_centre(c))
        take_whole(c, head, body);
    else if (head->kind != PL_MESSAGE_BEAT)
        lose(c, link, PL_ERR_COMM_PEER_LOST, "sent what is no message");
}

static void read_link(struct pl_control *c, uint32_t link) {
    struct pl_link *l = &c->links[link];
    struct pl_head head;
    const void *body;
    enum pl_link_got got;
    while ((got = pl_link_get(l, &head, &body)) == PL_LINK_MESSAGE) {
        l->heard_ms = pl_now_ms();
        take_message(c, link, &head, body);
        pl_link_take(l);
    }
    if (got == PL_LINK_ENDED) lose(c, link, PL_ERR_COMM_PEER_LOST, "ended without a word");
    if (got == PL_LINK_NONSENSE) lose(c, link, PL_ERR_COMM_PEER_LOST, "sent what is no message");
}

/* ---- time ---- */

static void beat(struct pl_control *c) {
    const struct pl_head head = {.magic = PL_MAGIC, .kind = PL_MESSAGE_BEAT};
    for (uint32_t i = first_link(c); i < c->n_links; i++)
        if (c->links[i].out_have == 0) (void)pl_link_put(&c->links[i], &head, NULL);
}

/* All were heard of just now: at the start, and where this process was itself stopped. */
static void begin_to_count(struct pl_control *c, uint64_t now) {
    for (uint32_t i = first_link(c); i < c->n_links; i++)
        c->links[i].heard_ms = now;
}

static void wait_for_any(struct pl_control *c, uint64_t ms) {
    struct pollfd fds[1 + PL_RANKS_MAX];
    nfds_t n = 0;
    uint64_t woken;
    fds[n++] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    for (uint32_t i = first_link(c); i < c->n_links; i++)
        if (c->links[i].fd >= 0)
            fds[n++] = (struct pollfd){
                .fd = c->links[i].fd,
                .events = (short)(c->links[i].out_have ? POLLIN | POLLOUT : POLLIN)};
    (void)poll(fds, n, (int)ms);
    ssize_t cleared = fds[0].revents ? read(c->wake, &woken, sizeof woken) : 0;
    (void)cleared;
}

static void flush(struct pl_control *c) {
    for (uint32_t i = first_link(c); i < c->n_links; i++)
        if (!pl_link_flush(&c->links[i])) lose(c, i, PL_ERR_COMM_PEER_LOST, "ended without a word");
}

/* Tells every connected rank of the first loss, once. */
static void tell_loss(struct pl_control *c) {
    if (c->told || !atomic_load(&c->lost)) return;
    put_loss(c, &c->loss);
    flush(c);
    pthread_mutex_lock(&c->lock);
    c->told = true;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the end ---- */

/* The hook is called after the others were told, since an engine may take its time. */
static void call_hook(struct pl_control *c) {
    if (!atomic_load(&c->lost)) return;
    pthread_mutex_lock(&c->hook_lock);
    void (*call)(void *arg) = c->on_loss;
    c->on_loss = NULL;
    if (call) call(c->on_loss_arg);
    pthread_mutex_unlock(&c->hook_lock);
}

static void say_farewell(struct pl_control *c, bool orderly) {
    const struct pl_head leave = {.magic = PL_MAGIC, .kind = PL_MESSAGE_LEAVE};
    struct pl_loss loss = {
        .rank = c->world.rank, .err = PL_ERR_COMM_PEER_LOST, .why = "ended before the others"};
    if (!orderly && !atomic_load(&c->lost)) put_loss(c, &loss);
    for (uint32_t i = first_link(c); orderly && i < c->n_links; i++)
        (void)pl_link_put(&c->links[i], &leave, NULL);
}

/* Closing a connection with bytes that were not read would reset it, and the last words with it. */
static bool is_drained(struct pl_link *l) {
    struct pl_head head;
    const void *body;
    enum pl_link_got got;
    if (l->fd < 0) return true;
    if (!pl_link_flush(l)) return true;
    if (l->out_have == 0) (void)shutdown(l->fd, SHUT_WR);
    while ((got = pl_link_get(l, &head, &body)) == PL_LINK_MESSAGE)
        pl_link_take(l);
    return got != PL_LINK_NOTHING;
}

static void leave(struct pl_control *c, bool orderly) {
    uint64_t until = pl_now_ms() + FAREWELL_MS;
    tell_loss(c);
    say_farewell(c, orderly);
    for (uint32_t open = 1; open && pl_now_ms() < until;) {
        open = 0;
        for (uint32_t i = first_link(c); i < c->n_links; i++) {
            if (is_drained(&c->links[i])) pl_link_finish(&c->links[i]);
            open += c->links[i].fd >= 0;
        }
        if (open) wait_for_any(c, 20);
    }
}

static int asked_to_leave(struct pl_control *c) {
    pthread_mutex_lock(&c->lock);
    int how = (int)c->leave;
    pthread_mutex_unlock(&c->lock);
    return how;
}

void *pl_serve(void *control) {
    struct pl_control *c = control;
    uint64_t now = pl_now_ms(), next_beat = now, before = now;
    begin_to_count(c, now);
    int how;
    while ((how = asked_to_leave(c)) == PL_STAY) {
        flush(c);
        now = pl_now_ms();
        wait_for_any(c, next_beat > now ? next_beat - now : 0);
        now = pl_now_ms();
        if (now - before > c->timeout_ms / 2 + c->beat_ms) begin_to_count(c, now);
        before = now;
        for (uint32_t i = first_link(c); i < c->n_links; i++)
            read_link(c, i);
        for (uint32_t i = first_link(c); i < c->n_links; i++)
            if (c->links[i].fd >= 0 && now > c->links[i].heard_ms + c->timeout_ms)
                lose_silent(c, i);
        move_round(c);
        tell_loss(c);
        call_hook(c);
        if (now >= next_beat) {
            beat(c);
            next_beat = now + c->beat_ms;
        }
    }
    leave(c, how == PL_LEAVE_ORDERLY);
    return NULL;
}
