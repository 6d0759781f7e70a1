/* carquet.h - the library that decodes Parquet files, loaded when the first such file is read.
 *
 * In: nothing.  Out: its functions.  Needs: base, dlopen. Types and numbers are those of carquet
 * 0.7; they are declared here because its package for Python has no header.
 *   Q1  another version is refused: its structs may differ
 *   Q2  the process that loads it is one that may crash (unpack_parquet.h)
 * Use: struct pl_carquet c; PL_TRY(pl_carquet_load(&c, path, &d)); ... pl_carquet_unload(&c); */
#ifndef PL_RUNTIME_DATA_PARQUET_CARQUET_H
#define PL_RUNTIME_DATA_PARQUET_CARQUET_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pl_carquet_reader;
struct pl_carquet_column;
struct pl_carquet_schema;
struct pl_carquet_element;

/* The first bytes of carquet_error_t; `rest` has more room than it needs. */
struct pl_carquet_error {
    int code;
    char message[256];
    uint64_t rest[16];
};

/* carquet_byte_array_t */
struct pl_carquet_bytes {
    const char *data;
    int32_t n;
};

/* carquet_row_group_metadata_t */
struct pl_carquet_group {
    int64_t rows, bytes, compressed_bytes;
};

enum pl_carquet_physical {
    PL_CARQUET_BOOLEAN,
    PL_CARQUET_INT32,
    PL_CARQUET_INT64,
    PL_CARQUET_INT96,
    PL_CARQUET_FLOAT,
    PL_CARQUET_DOUBLE,
    PL_CARQUET_BYTE_ARRAY,
    PL_CARQUET_FIXED,
    PL_CARQUET_PHYSICALS,
};

/* Types of the format, in the order of carquet_logical_type_id_t. */
#define PL_CARQUET_LOGICALS(X)                                                                     \
    X(NONE)                                                                                        \
    X(STRING)                                                                                      \
    X(MAP)                                                                                         \
    X(LIST)                                                                                        \
    X(ENUM)                                                                                        \
    X(DECIMAL)                                                                                     \
    X(DATE)                                                                                        \
    X(TIME) X(TIMESTAMP) X(INTEGER) X(NULL) X(JSON) X(BSON) X(UUID) X(FLOAT16) X(VARIANT)          \
        X(GEOMETRY) X(GEOGRAPHY) X(INTERVAL)
enum pl_carquet_logical_id {
#define X(name) PL_CARQUET_##name,
    PL_CARQUET_LOGICALS(X)
#undef X
        PL_CARQUET_LOGICAL_IDS
};

/* The first bytes of carquet_logical_type_t. */
struct pl_carquet_logical {
    int id;
    struct {
        int8_t bits;
        bool is_signed;
    } integer;
};

enum { PL_CARQUET_REQUIRED, PL_CARQUET_OPTIONAL, PL_CARQUET_REPEATED };

/* X(result, name, arguments) */
#define PL_CARQUET_READERS(X)                                                                      \
    X(struct pl_carquet_reader *, reader_open_file,                                                \
      (FILE * file, const void *options, struct pl_carquet_error *e))                              \
    X(void, reader_close, (struct pl_carquet_reader * r))                                          \
    X(const struct pl_carquet_schema *, reader_schema, (const struct pl_carquet_reader *r))        \
    X(int32_t, reader_num_row_groups, (const struct pl_carquet_reader *r))                         \
    X(int, reader_row_group_metadata,                                                              \
      (const struct pl_carquet_reader *r, int32_t group, struct pl_carquet_group *out))            \
    X(struct pl_carquet_column *, reader_get_column,                                               \
      (struct pl_carquet_reader * r, int32_t group, int32_t column, struct pl_carquet_error * e))  \
    X(int64_t, column_read_batch_ex,                                                               \
      (struct pl_carquet_column * c, void *values, int64_t most, int16_t *definitions,             \
       int16_t *repetitions, struct pl_carquet_error *e))                                          \
    X(int64_t, column_skip, (struct pl_carquet_column * c, int64_t n))                             \
    X(void, column_reader_free, (struct pl_carquet_column * c))                                    \
    X(int32_t, schema_num_columns, (const struct pl_carquet_schema *s))                            \
    X(int32_t, schema_num_elements, (const struct pl_carquet_schema *s))                           \
    X(int32_t, schema_column_path,                                                                 \
      (const struct pl_carquet_schema *s, int32_t column, const char **path, int32_t most))        \
    X(int16_t, schema_max_def_level, (const struct pl_carquet_schema *s, int32_t column))          \
    X(int16_t, schema_max_rep_level, (const struct pl_carquet_schema *s, int32_t column))          \
    X(const struct pl_carquet_element *, schema_get_element,                                       \
      (const struct pl_carquet_schema *s, int32_t i))                                              \
    X(const char *, schema_node_name, (const struct pl_carquet_element *e))                        \
    X(bool, schema_node_is_leaf, (const struct pl_carquet_element *e))                             \
    X(int, schema_node_physical_type, (const struct pl_carquet_element *e))                        \
    X(const struct pl_carquet_logical *, schema_node_logical_type,                                 \
      (const struct pl_carquet_element *e))                                                        \
    X(int, schema_node_repetition, (const struct pl_carquet_element *e))                           \
    X(int32_t, schema_node_type_length, (const struct pl_carquet_element *e))

#define PL_CARQUET_FUNCTIONS(X)                                                                    \
    X(void, version_components, (int *major, int *minor, int *patch))                              \
    PL_CARQUET_READERS(X)

struct pl_carquet {
    void *library;
#define X(result, name, arguments) result(*name) arguments;
    PL_CARQUET_FUNCTIONS(X)
#undef X
};

/* Searches for the library: the path in PLIMSOLL_CARQUET, else the loader's own places, the
 * packages of every Python on PATH, next to the program, and those of the user. PL_ERR_DATA_SYNTAX
 * at `path`, with the command that installs it: it is not there. On failure nothing is held. */
pl_err pl_carquet_load(struct pl_carquet *c, const char *path, struct pl_diag *d);
void pl_carquet_unload(struct pl_carquet *c);

#endif
