/* fuzz_weight_index.c - the index of sharded weights, next to one shard that is in order. */
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/windows.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void write_shard(void) {
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}";
    uint8_t bytes[8 + sizeof header - 1 + 2] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    fuzz_file("shard", bytes, sizeof bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool written;
    struct pl_weight_files f;
    struct pl_diag d = {0};
    if (!written) write_shard();
    written = true;
    fuzz_file("model.safetensors.index.json", data, size);
    pl_err err = pl_weight_files_open(&f, fuzz_dir(), "model", PL_ERR_MODEL_WEIGHTS, &d);
    if (fuzz_outcome(err, &d)) FUZZ_CHECK(f.n <= 1);
    pl_weight_files_close(&f);
    return 0;
}
