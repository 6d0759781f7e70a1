/* content.h - the content of data files, however many there are.
 *
 * In: paths.  Out: bytes of a file, unpacked, from any position.  Needs: base.
 *   C1  at most PL_POOL_MOST files are open at a time, and at most a quarter of what `ulimit -n`
 *       allows: the one that was read longest ago is closed for the next
 *   C2  a file that is opened again may be another by then: its reader compares what it reads with
 *       what it read first
 * Use: pl_pool_open(&pool, path, &fd, &why); ... pl_pool_close(&pool, &fd); */
#ifndef PL_RUNTIME_DATA_CONTENT_H
#define PL_RUNTIME_DATA_CONTENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PL_POOL_MOST 64

struct pl_pool { /* Files that may be open at a time; {0} holds none. */
    struct {
        int *fd;       /* borrowed: -1 after the pool has closed it */
        uint64_t used; /* time of the last request for it */
    } open[PL_POOL_MOST];
    uint32_t n, most; /* most: 0 until the first file is opened */
    uint64_t clock;
};

/* Returns the descriptor of a file, opened if *fd is -1; valid until the next call. -1: errno and
 * *why are those of pl_open_file. */
int pl_pool_open(struct pl_pool *pool, const char *path, int *fd, const char **why);
/* Adds a descriptor that is open already. */
void pl_pool_adopt(struct pl_pool *pool, int *fd);
/* Closes the descriptor if it is open, and forgets it. */
void pl_pool_close(struct pl_pool *pool, int *fd);

/* The part of an open file that is the content of a data file. */
struct pl_content {
    int fd; /* borrowed */
    uint64_t begin, bytes;
};
#define PL_CONTENT_OF(descriptor)                                                                  \
    ((struct pl_content){(descriptor), 0, UINT64_MAX}) /* up to the end */

/* pread(), repeated after a signal. */
ssize_t pl_content_read(const struct pl_content *c, void *to, size_t n, uint64_t at);
/* Returns the line of a position, 1-based; 0 if the text before it cannot be read. */
uint64_t pl_content_line(const struct pl_content *c, uint64_t at);

#endif
