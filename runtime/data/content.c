#include "runtime/data/content.h"

#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static uint32_t slot_of(const struct pl_pool *pool, const int *fd) {
    uint32_t i = 0;
    while (i < pool->n && pool->open[i].fd != fd)
        i++;
    return i;
}

void pl_pool_close(struct pl_pool *pool, int *fd) {
    const uint32_t i = slot_of(pool, fd);
    if (i < pool->n) pool->open[i] = pool->open[--pool->n];
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_oldest(struct pl_pool *pool) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < pool->n; i++)
        if (pool->open[i].used < pool->open[oldest].used) oldest = i;
    pl_pool_close(pool, pool->open[oldest].fd);
}

void pl_pool_adopt(struct pl_pool *pool, int *fd) {
    struct rlimit limit;
    if (!pool->most) { /* other files of the process need descriptors, too */
        const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
        const uint64_t quarter = known ? (uint64_t)limit.rlim_cur / 4 : PL_POOL_MOST;
        pool->most = (uint32_t)pl_u64_max(2, pl_u64_min(PL_POOL_MOST, quarter));
    }
    while (pool->n >= pool->most)
        close_oldest(pool);
    pool->open[pool->n].fd = fd;
    pool->open[pool->n++].used = ++pool->clock;
}

int pl_pool_open(struct pl_pool *pool, const char *path, int *fd, const char **why) {
    if (*fd >= 0) {
        const uint32_t i = slot_of(pool, fd);
        if (i < pool->n) pool->open[i].used = ++pool->clock;
        return *fd;
    }
    while ((*fd = pl_open_file(path, NULL, why)) < 0 && (errno == EMFILE || errno == ENFILE)) {
        if (!pool->n) return -1;
        close_oldest(pool);
    }
    if (*fd >= 0) pl_pool_adopt(pool, fd);
    return *fd;
}

ssize_t pl_content_read(const struct pl_content *c, void *to, size_t n, uint64_t at) {
    ssize_t got;
    if (at >= c->bytes) return 0;
    n = (size_t)pl_u64_min(n, c->bytes - at);
    do
        got = pread(c->fd, to, n, (off_t)(c->begin + at));
    while (got < 0 && errno == EINTR);
    return got;
}

uint64_t pl_content_line(const struct pl_content *c, uint64_t at) {
    char buf[4096];
    uint64_t line = 1;
    for (uint64_t done = 0; done < at;) {
        const ssize_t got = pl_content_read(c, buf, pl_u64_min(sizeof buf, at - done), done);
        if (got <= 0) return 0;
        for (ssize_t i = 0; i < got; i++)
            line += buf[i] == '\n';
        done += (uint64_t)got;
    }
    return line;
}
