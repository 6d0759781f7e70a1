/* fuzz_save_journal.c - plimsoll-save.journal: the input is the file, and once more with its last
 * line, a digest, set right. */
#include "runtime/checkpoint/save_set.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Makes the files next to the journal: some that it may name, and one outside that it may not
 * reach. */
static void settle(const uint8_t *data, size_t size) {
    static const uint8_t old[] = "old", new[] = "new";
    struct pl_diag d = {0};
    struct stat st;
    fuzz_file("config.json", old, 3);
    fuzz_file("config.json.tmp", new, 3);
    fuzz_file("weights", old, 3);
    fuzz_file("weights.tmp", new, 3);
    fuzz_file(".hidden", old, 3);
    char journal[256];
    snprintf(journal, sizeof journal, "%s", fuzz_file(PL_SAVE_JOURNAL, data, size));
    bool done = fuzz_outcome(pl_save_set_settle(fuzz_dir(), &d), &d);
    FUZZ_CHECK((stat(journal, &st) != 0) == done);
    char hidden[256];
    snprintf(hidden, sizeof hidden, "%s/.hidden", fuzz_dir());
    FUZZ_CHECK(stat(hidden, &st) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t whole[FUZZ_MAX_BYTES + 32];
    struct pl_digest h;
    size_t n = 0;
    settle(data, size);
    if (size > FUZZ_MAX_BYTES) return 0;
    for (size_t i = 0; i < size; i++)
        if (data[i] == '\n' && i + 1 < size) n = i + 1; /* before the last line */
    memcpy(whole, data, n);
    pl_digest_init(&h, 0);
    pl_digest_add(&h, data, n);
    n += (size_t)snprintf((char *)whole + n, 32, "end %016llx\n",
                          (unsigned long long)pl_digest_value(&h));
    settle(whole, n);
    return 0;
}
