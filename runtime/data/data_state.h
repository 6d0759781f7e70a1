/* data_state.h - the files of the data and their rows; shared by data.c and data_open.c. */
#ifndef PL_RUNTIME_DATA_DATA_STATE_H
#define PL_RUNTIME_DATA_DATA_STATE_H

#include "runtime/data/cache.h"
#include "runtime/data/content.h"
#include "runtime/data/csv.h"
#include "runtime/data/data_stats.h"
#include "runtime/data/formats.h"
#include "runtime/data/unpack.h"

#include <pthread.h>

struct stored_row {  /* all that stays in memory of a row */
    uint64_t offset; /* offset of the row in its file, or in the cache */
    uint32_t bytes;  /* bytes of the row, or its tokens in the cache */
    uint32_t tokens; /* that are computed; CUT: the row had more */
    uint64_t digest; /* digest of the sample when the row was first read */
};

struct data_file {
    struct pl_data_file info;
    char *path; /* owned; info.path is the same */
    int fd;     /* -1: closed for the time being, or not needed any more */
    bool packed;
    struct pl_content content; /* while the file is indexed, and when it is packed */
    uint64_t content_bytes;    /* unpacked; 0: not known */
    struct pl_cache cache;     /* path NULL: rows are parsed from the file itself */
    const struct pl_format *format;
    struct pl_row_shape shape;
    bool csv, parquet;
    struct pl_csv header; /* columns of a CSV file */
    bool detected;
    uint64_t skip;   /* its first rows, which are passed over */
    uint64_t most;   /* rows after them that are read, at most */
    uint32_t entry;  /* number of the entry that names it */
    uint64_t passed; /* rows that were read, those that were dropped included */
};

struct pl_data {
    struct data_file *files;
    uint32_t n_files;
    struct pl_pool pool; /* pool of descriptors for the files and their caches */
    struct pl_unpacked unpacked;
    struct stored_row *rows;
    uint64_t n_rows, cap_rows;
    struct pl_data_stats stats;
    struct pl_longest longest; /* longest first */
    struct pl_row_parser parser;
    const struct pl_job *job; /* borrowed while opening, as these three */
    const struct pl_model *model;
    struct pl_dataset_list entries; /* items owned, their paths borrowed */
    const struct pl_data_watch *watch;
    uint64_t max_tokens; /* of all samples of a row */
    bool prefers;        /* rows are of preferences */
    uint64_t positions;  /* that the model was made for; 0 = it scales them */
    uint32_t overlength;
    pthread_mutex_t lock; /* guards the following members, and the parser */
    struct pl_text json;  /* a CSV record as a row */
    char *buf;            /* bytes of one row */
    size_t buf_cap;
};

#endif
