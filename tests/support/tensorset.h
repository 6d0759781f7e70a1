/* tensorset.h - the tensors of a directory of safetensors, as fp32, and how far two sets differ.
 *
 * Reads one file or the shards of an index, bf16 and fp32, with the project's own reader. Failures
 * end the test.
 * Use: struct weights w; weights_open(&w, dir, "model"); ... weights_close(&w); */
#ifndef PL_TESTS_SUPPORT_TENSORSET_H
#define PL_TESTS_SUPPORT_TENSORSET_H

#include "runtime/checkpoint/safetensors.h"

#include <stdbool.h>

#define WEIGHTS_FILES 16

struct weights {
    struct pl_st_file files[WEIGHTS_FILES];
    int n;
};

struct weight { /* a tensor of an open set */
    const struct pl_st_file *file;
    const struct pl_st_entry *entry; /* NULL = not there */
};

/* Opens dir/stem.safetensors, else the shards that dir/stem.safetensors.index.json names. */
void weights_open(struct weights *w, const char *dir, const char *stem);
void weights_close(struct weights *w);
struct weight weights_find(const struct weights *w, const char *name);
/* Returns the tensor's elements, malloc'd. */
float *weight_values(const struct weight *t, uint64_t *n);
/* True if both hold the same bytes under the same type and shape. */
bool weight_same_bits(const struct weight *a, const struct weight *b);

/* L2 norm of the difference and largest difference of one element; inf when not finite. */
struct weight_gap {
    double l2, largest;
};
struct weight_gap weight_compare(const struct weight *a, const struct weight *b);
/* Compares all tensors of `a`, which `b` must have too, and no more. */
struct weight_gap weights_compare(const struct weights *a, const struct weights *b);
/* Ends the test unless dir_a and dir_b hold the same tensors bit for bit. */
void weights_assert_same(const char *dir_a, const char *dir_b, const char *stem);

#endif
