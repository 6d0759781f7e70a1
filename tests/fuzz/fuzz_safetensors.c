/* fuzz_safetensors.c - a whole safetensors file. */
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* S2 of safetensors.h: by name, without hole or overlap, up to the end of the file. */
static void check_entries(const struct pl_st_file *f, size_t size) {
    uint64_t sum = 0;
    FUZZ_CHECK(f->data_offset + f->data_bytes == size);
    for (uint64_t i = 0; i < f->n; i++) {
        const struct pl_st_entry *e = &f->entries[i];
        FUZZ_CHECK(e->begin <= e->end && e->end <= f->data_bytes);
        FUZZ_CHECK(i == 0 || strcmp(f->entries[i - 1].name, e->name) < 0);
        FUZZ_CHECK(pl_st_find(f, e->name) == e);
        sum += e->end - e->begin;
    }
    FUZZ_CHECK(sum == f->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_st_file f;
    struct pl_diag d = {0};
    uint8_t last;
    bool opened = fuzz_outcome(pl_st_open(&f, fuzz_file("x", data, size), &d), &d);
    for (uint64_t i = 0; opened && i < f.n; i++) {
        const struct pl_st_entry *e = &f.entries[i];
        if (e->end == e->begin) continue;
        FUZZ_CHECK(pl_st_read(&f, e, e->end - e->begin - 1, &last, 1, &d) == PL_ERR_OK);
        FUZZ_CHECK(last == data[f.data_offset + e->end - 1]);
    }
    if (opened) check_entries(&f, size);
    pl_st_close(&f);
    return 0;
}
