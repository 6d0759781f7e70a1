/* rank_process.c - tests whose ranks are real processes. */
#include "tests/comm/rank_process.h"

#include "runtime/comm/launch.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct ranks_shared *ranks;

static void map_shared(int fd) {
    ranks = mmap(NULL, sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ranks == MAP_FAILED) abort();
    close(fd);
}

/* The memory has a name, since ranks of mpiexec inherit no descriptor. */
void ranks_init(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/plimsoll-ranks-%d", (int)getpid());
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && ftruncate(fd, sizeof *ranks) == 0);
    map_shared(fd);
    ck_assert_int_eq(setenv("RANKS_SHARED", path, 1), 0);
}

int ranks_main(int argc, char *argv[], const struct ranks_body *bodies, size_t n) {
    struct pl_world w;
    struct pl_diag d = {0};
    if (argc != 3 || strcmp(argv[1], "--rank") != 0) return -1;
    int fd = open(getenv("RANKS_SHARED"), O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    map_shared(fd);
    if (pl_world_init(&w, &d) != PL_ERR_OK) {
        fprintf(stderr, "%s\n", d.message);
        return 99;
    }
    ranks->of[w.rank].pid = getpid();
    ranks->of[w.rank].err = -1; /* nothing was written down */
    atomic_store(&ranks->port, w.port);
    for (size_t i = 0; i < n; i++)
        if (strcmp(bodies[i].name, argv[2]) == 0) return bodies[i].run(&w);
    return 98;
}

int ranks_run(const struct ranks_run *r) {
    char self[512], rank[] = "--rank", body[64];
    struct pl_diag d = {0};
    int status;
    if (!ranks) ranks_init();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert(n > 0);
    self[n] = 0;
    snprintf(body, sizeof body, "%s", r->body);
    char *argv[] = {self, rank, body, NULL};
    ranks->limit = r->limit;
    ranks->seed = r->seed;
    ranks->signal = r->signal;
    ranks->victim = r->signal ? r->victim : -1;
    const struct pl_launch l = {
        .ranks = r->n, .timeout_seconds = r->limit, .mpi = r->mpi, .argv = argv};
    ck_assert_msg(pl_launch(&l, &status, &d) == PL_ERR_OK, "%s", d.message);
    unlink(getenv("RANKS_SHARED"));
    return status;
}

uint64_t ranks_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t ranks_mix(uint64_t a, uint64_t b) {
    uint64_t x = ranks->seed * UINT64_C(0x9E3779B97F4A7C15) + a * UINT64_C(0xBF58476D1CE4E5B9) + b;
    x ^= x >> 30, x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27, x *= UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static void *fall(void *delay_us) {
    usleep(*(useconds_t *)delay_us);
    atomic_store(&ranks->fell_ns, ranks_now_ns());
    kill(getpid(), ranks->signal);
    return NULL;
}

void ranks_fall_soon(const struct pl_world *w, uint32_t most_ms) {
    static useconds_t delay_us;
    pthread_t thread;
    if ((int)w->rank != ranks->victim) return;
    delay_us = (useconds_t)(ranks_mix(w->rank, 77) % (most_ms * 1000));
    if (pthread_create(&thread, NULL, fall, &delay_us) != 0) abort();
    pthread_detach(thread);
}

int ranks_note(const struct pl_world *w, pl_err err, const struct pl_diag *d) {
    struct rank_outcome *o = &ranks->of[w->rank];
    uint64_t fell = atomic_load(&ranks->fell_ns);
    o->seconds = fell ? 1e-9 * (double)(ranks_now_ns() - fell) : 0;
    memcpy(o->message, d->message, sizeof o->message);
    o->err = (int)err;
    return err != PL_ERR_OK;
}

static void keep_told(void *rank, const char *line) {
    struct rank_outcome *o = rank;
    snprintf(o->told, sizeof o->told, "%s", line);
}

pl_err ranks_open_control(struct pl_comm *c, const struct pl_world *w, struct pl_diag *d) {
    const struct pl_teller teller = {keep_told, &ranks->of[w->rank]};
    struct pl_meeting m = {.listener = -1, .port = w->port, .teller = &teller};
    *c = (struct pl_comm){.world = *w, .request.timeout_seconds = ranks->limit};
    strcpy(m.address, w->address);
    strcpy(m.token, getenv(PL_JOB_TOKEN));
    return pl_control_open(&c->control, w, &m, ranks->limit, d);
}
