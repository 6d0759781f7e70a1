/* toy_runs.h - runs of a recorded case's model, and of the same model under the name of a family
 * that a test binary alone has, on which their weights must agree.
 *
 * In: GOLDEN_CASES, and PLIMSOLL, the binary with the family. */
#ifndef PL_TESTS_SUPPORT_TOY_RUNS_H
#define PL_TESTS_SUPPORT_TOY_RUNS_H

struct toy_run {
    const char *device, *level, *mode;
};

/* Makes a directory with the model of llama-full, of which each pair of texts in config.json is
 * replaced; a NULL ends the pairs. */
void toy_begin(const char *const pairs[]);
void toy_end(void);
const char *toy_dir(void);   /* for outputs */
const char *toy_case(void);  /* the directory of the recorded case */
const char *toy_model(void); /* the model of the family */
/* Trains both models and compares what they save, bit for bit. */
void toy_compare(const struct toy_run *run);

#endif
