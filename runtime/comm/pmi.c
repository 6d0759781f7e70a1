/* pmi.c - the server's side of PMI-1. */
#include "runtime/comm/pmi.h"
#include "estimator/base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEY_MOST = 64, VALUE_MOST = 1024 };

static bool answer(const struct pl_pmi *p, uint32_t rank, const char *line) {
    size_t n = strlen(line);
    return send(p->fds[rank], line, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* The word after ` name=`; false: none, or a longer one than `most` - 1. Values hold no blanks. */
static bool word(const char *line, const char *name, char *out, size_t most) {
    size_t n = strlen(name);
    for (const char *at = line; (at = strstr(at, name)) != NULL; at++) {
        if ((at > line && at[-1] != ' ') || at[n] != '=') continue;
        size_t length = strcspn(at + n + 1, " \n");
        if (length >= most) return false;
        memcpy(out, at + n + 1, length);
        out[length] = 0;
        return true;
    }
    return false;
}

static const char *find_value(const struct pl_pmi *p, const char *key) {
    for (uint32_t at = 0; at < p->store_bytes;) {
        const char *value = p->store + at + strlen(p->store + at) + 1;
        if (strcmp(p->store + at, key) == 0) return value;
        at = (uint32_t)(value + strlen(value) + 1 - p->store);
    }
    return NULL;
}

static bool do_put(struct pl_pmi *p, uint32_t rank, const char *line) {
    char key[KEY_MOST], value[VALUE_MOST];
    if (!word(line, "key", key, sizeof key) || !word(line, "value", value, sizeof value))
        return answer(p, rank, "cmd=put_result rc=-1 msg=too_long\n");
    size_t bytes = strlen(key) + strlen(value) + 2;
    char *store =
        p->store_bytes + bytes <= PL_PMI_MOST ? pl_realloc(p->store, p->store_bytes + bytes) : NULL;
    if (!store) return answer(p, rank, "cmd=put_result rc=-1 msg=no_room\n");
    p->store = store;
    strcpy(store + p->store_bytes, key);
    strcpy(store + p->store_bytes + strlen(key) + 1, value);
    p->store_bytes += (uint32_t)bytes;
    return answer(p, rank, "cmd=put_result rc=0 msg=success\n");
}

static bool do_get(struct pl_pmi *p, uint32_t rank, const char *line) {
    char key[KEY_MOST], text[VALUE_MOST + 64];
    const char *value = word(line, "key", key, sizeof key) ? find_value(p, key) : NULL;
    if (value)
        snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else if (strcmp(key, "PMI_process_mapping") == 0) /* all on one machine */
        snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=(vector,(0,1,%u))\n",
                 p->ranks);
    else
        snprintf(text, sizeof text, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    return answer(p, rank, text);
}

static bool do_barrier(struct pl_pmi *p, uint32_t rank, const char *line) {
    bool all = true;
    (void)line;
    p->waits[rank] = true;
    for (uint32_t r = 0; r < p->ranks; r++)
        if (!p->waits[r]) return true;
    for (uint32_t r = 0; r < p->ranks; r++) {
        p->waits[r] = false;
        if (p->fds[r] >= 0) all = answer(p, r, "cmd=barrier_out\n") && all;
    }
    return all;
}

static bool do_universe(struct pl_pmi *p, uint32_t rank, const char *line) {
    char text[64];
    (void)line;
    snprintf(text, sizeof text, "cmd=universe_size size=%u\n", p->ranks);
    return answer(p, rank, text);
}

static bool do_abort(struct pl_pmi *p, uint32_t rank, const char *line) {
    (void)line;
    p->aborted[rank] = true;
    return true;
}

static bool obey(struct pl_pmi *p, uint32_t rank, const char *line) {
    static const struct {
        const char *name;
        const char *reply; /* the reply, if it is always the same */
        bool (*run)(struct pl_pmi *p, uint32_t rank, const char *line);
    } commands[] = {
        {"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", NULL},
        {"get_maxes", "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n", NULL},
        {"get_appnum", "cmd=appnum appnum=0\n", NULL},
        {"get_my_kvsname", "cmd=my_kvsname kvsname=plimsoll\n", NULL},
        {"get_universe_size", NULL, do_universe},
        {"put", NULL, do_put},
        {"get", NULL, do_get},
        {"barrier_in", NULL, do_barrier},
        {"finalize", "cmd=finalize_ack\n", NULL},
        {"abort", NULL, do_abort},
    };
    char name[32];
    if (!word(line, "cmd", name, sizeof name)) return false;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].reply ? answer(p, rank, commands[i].reply)
                                     : commands[i].run(p, rank, line);
    return false;
}

/* Whole lines that have come; what is left of them stays. */
static bool obey_lines(struct pl_pmi *p, uint32_t rank) {
    char *lines = p->lines[rank], *end;
    while ((end = memchr(lines, '\n', p->have[rank])) != NULL) {
        *end = 0;
        if (!obey(p, rank, lines)) return false;
        uint32_t used = (uint32_t)(end + 1 - lines);
        p->have[rank] -= used;
        memmove(lines, end + 1, p->have[rank]);
    }
    /* Q1: a line that fills its room has no end. */
    return p->have[rank] < PL_PMI_LINE;
}

bool pl_pmi_hear(struct pl_pmi *p, uint32_t rank) {
    ssize_t n = recv(p->fds[rank], p->lines[rank] + p->have[rank], PL_PMI_LINE - p->have[rank],
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n > 0) p->have[rank] += (uint32_t)n;
    if (n > 0 && obey_lines(p, rank)) return true;
    close(p->fds[rank]);
    p->fds[rank] = -1;
    return false;
}

void pl_pmi_finish(struct pl_pmi *p) {
    for (uint32_t r = 0; r < p->ranks; r++)
        if (p->fds[r] >= 0) close(p->fds[r]);
    free(p->store);
    *p = (struct pl_pmi){0};
}
