/* fuzz_gguf.c - a whole GGUF file: metadata as configuration and tokenizer, tensors as weights. */
#include "estimator/gguf/gguf_tokenizer.h"
#include "estimator/model/model.h"
#include "runtime/checkpoint/gguf_weights.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

/* P2 of gguf_parse.h: tensors lie in the file, by name, and no two have one. */
static void check_entries(const struct pl_gguf *g, size_t size) {
    for (uint64_t i = 0; i < g->header.n_entries; i++) {
        const struct pl_gguf_entry *e = &g->header.entries[i];
        FUZZ_CHECK(e->offset + e->bytes <= size);
        FUZZ_CHECK(i == 0 || pl_gguf_compare(&g->header.entries[i - 1].name, &e->name) < 0);
    }
}

static void read_texts(const char *path) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < 2; i++) {
        struct pl_text out = {0};
        struct pl_diag d = {0};
        char name[512];
        bool there = false;
        snprintf(name, sizeof name, "%s/%s", path, names[i]);
        (void)fuzz_outcome(pl_gguf_companion(name, &out, &there, &d), &d);
        pl_text_finish(&out);
    }
}

static void read_weights(const char *path) {
    struct pl_st_file f;
    struct pl_diag d = {0};
    if (!fuzz_outcome(pl_gguf_weights_open(&f, path, &d), &d)) return;
    for (uint64_t i = 0; i < f.n; i++) {
        const struct pl_st_entry *e = &f.entries[i];
        char sample[64];
        const uint64_t bytes = e->end < sizeof sample ? e->end : sizeof sample;
        struct pl_diag why = {0};
        if (e->dtype == PL_DTYPE_COUNT) continue;
        FUZZ_CHECK(pl_st_read(&f, e, e->end - bytes, sample, bytes, &why) == PL_ERR_OK);
    }
    pl_st_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_model m;
    struct pl_gguf g;
    struct pl_diag d = {0};
    const char *path = fuzz_file("x", data, size);
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) return 0;
    if (fuzz_outcome(pl_gguf_open(&g, path, &d), &d)) check_entries(&g, size);
    pl_gguf_close(&g);
    d = (struct pl_diag){0};
    (void)fuzz_outcome(pl_model_read(path, &m, &d), &d);
    read_texts(path);
    read_weights(path);
    return 0;
}
