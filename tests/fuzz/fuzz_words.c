/* fuzz_words.c - single words of the command line: sizes, names of GPUs and models, faults. */
#include "estimator/base/units.h"
#include "estimator/card/cards.h"
#include "estimator/config/debug_fault.h"
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/model/resolve.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* No directory of the machine is looked at: what reads like a path is left out. */
static void resolve(const char *word) {
    struct pl_model_ref ref;
    struct pl_diag d = {0};
    if (strchr(word, '/')) return;
    (void)fuzz_outcome(pl_model_resolve(word, &ref, NULL, &d), &d);
    pl_model_ref_finish(&ref);
}

/* A long word is checked from end to end by each key: one in EIGHTH of them, which ones is up to
 * its length. */
#define LONG   256
#define EIGHTH 8

static void set_every_key(const char *word, size_t size) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    struct pl_job job;
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    for (uint32_t i = 0; i < n; i++) {
        struct pl_diag d = {0};
        if (size > LONG && i % EIGHTH != size % EIGHTH) continue;
        (void)fuzz_outcome(pl_job_set(&job, keys[i].key, word, &d), &d);
    }
    pl_job_finish(&job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct pl_card *card;
    struct pl_fault fault;
    struct pl_diag d = {0};
    char text[PL_BYTES_TEXT];
    uint64_t bytes;
    bool ambiguous;
    char *word = malloc(size + 1);
    FUZZ_CHECK(word != NULL);
    memcpy(word, data, size);
    word[size] = 0;
    if (pl_bytes_parse(word, &bytes)) FUZZ_CHECK(strlen(pl_bytes_text(bytes, text)) < sizeof text);
    if (pl_fault_parse(word, &fault)) FUZZ_CHECK(fault.at > 0 && fault.count > 0);
    if (fuzz_outcome(pl_card_require(word, &card, &ambiguous, &d), &d)) FUZZ_CHECK(card != NULL);
    resolve(word);
    set_every_key(word, size);
    free(word);
    return 0;
}
