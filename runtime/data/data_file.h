/* data_file.h - a file of the data, and how far it is read. */
#ifndef PL_RUNTIME_DATA_DATA_FILE_H
#define PL_RUNTIME_DATA_DATA_FILE_H

#include "runtime/data/data_stats.h"

#include <stdint.h>

/* A file of the data and its rows, which are consecutive. */
struct pl_data_file {
    const char *path; /* path that was opened */
    uint64_t first, rows;
    double weight;
    struct pl_data_stats stats;
};

/* The progress of reading a file for the first time. */
struct pl_data_reading {
    const char *path;
    uint64_t done_bytes, bytes; /* bytes of its unpacked content */
    uint64_t rows;              /* so far */
};
struct pl_data_watch {
    void (*reading)(void *ctx, const struct pl_data_reading *at); /* called after every row */
    void *ctx;
};

#endif
