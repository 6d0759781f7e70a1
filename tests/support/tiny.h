/* tiny.h - a model, data and a run small enough for a step to take a millisecond.
 *
 * Use: tiny_make(dir, &(struct tiny){.mode = "full"}, "max_steps: 4\n");
 *      plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", NULL}); */
#ifndef PL_TESTS_SUPPORT_TINY_H
#define PL_TESTS_SUPPORT_TINY_H

#include <stdbool.h>
#include <stdint.h>

struct tiny {
    const char *mode;                    /* NULL = full */
    uint64_t rows, seed;                 /* seed of the data; 0 = 24 rows, seed 1 */
    uint64_t longest;                    /* tokens of a row; 0 = 16 */
    uint64_t hidden, layers, ffn, vocab; /* 0 = 32, 2, 48, 61 */
    bool untied;                         /* the head is a matrix of its own */
    uint64_t pad;                        /* pad_token_id; 0 = none */
};

/* Writes dir/config.json (llama, 4 heads, 2 of keys and values), dir/train.jsonl (rows of
 * 5..longest tokens, some masked, one without any target) and dir/run.yaml: mode, data and length
 * as in *t, then `more` (YAML lines), then - unless `more` has the key - random initialisation,
 * fp32, the device of the environment variable TINY_DEVICE or the CPU, 2 threads, and output in
 * dir/out. */
void tiny_make(const char *dir, const struct tiny *t, const char *more);
/* Writes dir/tokenizer.json: byte-level BPE of 9 tokens. */
void tiny_make_tokenizer(const char *dir);

#endif
