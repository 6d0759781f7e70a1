/* fuzz_run_state.c - trainer_state.json. */
#include "runtime/checkpoint/run_state.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_run_state state;
    struct pl_diag d = {0};
    fuzz_file("trainer_state.json", data, size);
    (void)fuzz_outcome(pl_checkpoint_read_state(fuzz_dir(), &state, &d), &d);
    return 0;
}
