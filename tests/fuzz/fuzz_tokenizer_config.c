/* fuzz_tokenizer_config.c - a tokenizer_config.json with a sound tokenizer.json: marks that are
 * tokens, templates that have a name, compile or are refused. */
#include "runtime/data/chat/own.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char tokenizer[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"</s>\":3},"
    "\"merges\":[\"a b\"]}}";

static void check_tokenizer(const struct pl_tokenizer *t) {
    const struct pl_tokenizer_template *x;
    struct pl_chat_program program = {0};
    struct pl_diag d = {0};
    const int64_t size = pl_tokenizer_size(t);
    FUZZ_CHECK(pl_tokenizer_bos(t) >= -1 && pl_tokenizer_bos(t) < size);
    FUZZ_CHECK(pl_tokenizer_eos(t) >= -1 && pl_tokenizer_eos(t) < size);
    for (size_t i = 0; (x = pl_tokenizer_template(t, i)) != NULL; i++)
        FUZZ_CHECK(x->name && x->text && x->where);
    (void)fuzz_outcome(pl_chat_program_take(&program, t, &d), &d);
    pl_chat_program_finish(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool written;
    struct pl_tokenizer *t = NULL;
    struct pl_diag d = {0};
    if (!written) fuzz_file("tokenizer.json", (const uint8_t *)tokenizer, sizeof tokenizer - 1);
    written = true;
    fuzz_file("tokenizer_config.json", data, size);
    if (fuzz_outcome(pl_tokenizer_open(fuzz_dir(), &t, &d), &d)) check_tokenizer(t);
    pl_tokenizer_close(&t);
    return 0;
}
