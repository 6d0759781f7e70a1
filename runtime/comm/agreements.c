/* agreements.c - what ranks agree on, made of rounds of the control channel. */
#include "runtime/comm/comm.h"
#include "estimator/base/checked.h"
#include "estimator/base/digest.h"
#include "estimator/base/text.h"
#include "runtime/comm/control.h"

#include <string.h>
#include <time.h>

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pl_err take_round(struct pl_comm *c, const struct pl_round *r, struct pl_diag *d) {
    double before = now_seconds();
    pl_err err = pl_control_round(c->control, r, d);
    c->wait_seconds += now_seconds() - before;
    return err;
}

pl_err pl_comm_agree(struct pl_comm *c, const void *mine, uint32_t bytes, void *all,
                     struct pl_diag *d) {
    const struct pl_round r = {.call = PL_CALL_AGREE,
                               .mine = mine,
                               .bytes = bytes,
                               .all = all,
                               .all_bytes = bytes * c->world.size};
    if (bytes > PL_AGREE_MOST)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "an agreement on %u bytes", bytes);
    return take_round(c, &r, d);
}

pl_err pl_comm_broadcast(struct pl_comm *c, void *p, uint64_t bytes, struct pl_diag *d) {
    for (uint64_t at = 0; at < bytes; at += PL_ROUND_MOST) {
        struct pl_round r = {.call = PL_CALL_BROADCAST, .all = (char *)p + at};
        r.all_bytes = (uint32_t)pl_u64_min(bytes - at, PL_ROUND_MOST);
        if (c->world.rank == 0) r.mine = r.all, r.bytes = r.all_bytes;
        PL_TRY(take_round(c, &r, d));
    }
    return PL_ERR_OK;
}

pl_err pl_comm_barrier(struct pl_comm *c, struct pl_diag *d) {
    const struct pl_round r = {.call = PL_CALL_BARRIER};
    return take_round(c, &r, d);
}

struct compared {
    uint64_t what, digest[2];
};

static uint64_t digest_of(const char *s, uint64_t seed) {
    struct pl_digest h;
    pl_digest_init(&h, seed);
    pl_digest_add(&h, s, strlen(s));
    return pl_digest_value(&h);
}

pl_err pl_comm_compare(struct pl_comm *c, const char *what, const char *digest, struct pl_diag *d) {
    char room[PL_RANKS_MAX * 4];
    struct pl_text names = PL_TEXT_FIXED(room);
    struct compared mine = {digest_of(what, 0), {digest_of(digest, 1), digest_of(digest, 2)}};
    struct compared all[PL_RANKS_MAX];
    uint32_t others = 0;
    const struct pl_round r = {.call = PL_CALL_COMPARE,
                               .mine = &mine,
                               .bytes = sizeof mine,
                               .all = all,
                               .all_bytes = (uint32_t)sizeof mine * c->world.size};
    PL_TRY(take_round(c, &r, d));
    for (uint32_t i = 1; i < c->world.size; i++)
        if (memcmp(&all[i], &all[0], sizeof all[0]) != 0)
            pl_text_addf(&names, "%s%u", others++ ? ", " : "", i);
    if (others == 0) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_COMM_MISMATCH, "%s of rank%s %s is not that of rank 0", what,
                       others > 1 ? "s" : "", pl_text_str(&names));
}

pl_err pl_comm_check(struct pl_comm *c, struct pl_diag *d) {
    return pl_control_check(c->control, d);
}

void pl_comm_fail(struct pl_comm *c, pl_err cause, const char *why) {
    pl_control_fail(c->control, cause, why);
}

/* A rank waits longer than those before it, so that the first of them is heard in time. */
void pl_comm_refuse(struct pl_comm *c, pl_err cause, struct pl_diag *d) {
    enum { FIRST_MS = 500, NEXT_MS = 100, MOST_MS = 1500 };
    const uint32_t ms = c->world.rank ? FIRST_MS + NEXT_MS * c->world.rank : 0;
    if (pl_control_hears(c->control, cause, ms < MOST_MS ? ms : MOST_MS)) {
        if (d) d->cause = cause;
        return;
    }
    pl_comm_fail(c, cause, d ? d->message : "");
}
