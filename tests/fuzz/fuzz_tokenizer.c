/* fuzz_tokenizer.c - a tokenizer.json; after a NUL comes the text to encode, if there is one. */
#include "estimator/config/scalar.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char usual[] =
    " Hello,  wor ld<s>! \xC3\xA9\xE2\x96\x81\xF0\x9F\x98\x80 12\n\n\t a\xCC\x81";

/* Ids that exist, at places that exist, and text from them that is UTF-8 (K4). */
static void check_tokens(const struct pl_tokenizer *t, const struct pl_token_list *list, size_t n) {
    struct pl_text back = {0};
    struct pl_diag d = {0};
    for (uint64_t i = 0; i < list->n; i++) {
        FUZZ_CHECK(list->ids[i] >= 0 && (uint64_t)list->ids[i] < pl_tokenizer_size(t));
        FUZZ_CHECK(pl_tokenizer_piece(t, list->ids[i]) != NULL);
        FUZZ_CHECK(list->starts[i] <= n);
    }
    FUZZ_CHECK(fuzz_outcome(pl_tokenizer_decode(t, list->ids, list->n, false, &back, &d), &d));
    if (!memchr(pl_text_str(&back), 0, back.len)) FUZZ_CHECK(pl_utf8_valid(pl_text_str(&back)));
    pl_text_finish(&back);
}

static void encode(const struct pl_tokenizer *t, const char *text, size_t n) {
    struct pl_tokenizer_scratch *scratch = NULL;
    struct pl_token_list list = {0};
    struct pl_diag d = {0};
    FUZZ_CHECK(pl_tokenizer_scratch_create(t, &scratch, &d) == PL_ERR_OK);
    for (int special = 0; special < 2; special++) {
        d = (struct pl_diag){0};
        if (fuzz_outcome(pl_tokenizer_encode(t, scratch, text, n, special, &list, &d), &d))
            check_tokens(t, &list, n);
    }
    pl_token_list_finish(&list);
    pl_tokenizer_scratch_destroy(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_tokenizer *t = NULL;
    struct pl_diag d = {0};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n_json = nul ? (size_t)(nul - data) : size, n_text = nul ? size - n_json - 1 : 0;
    char *text = malloc(n_text + 1);
    FUZZ_CHECK(text != NULL);
    if (n_text) memcpy(text, nul + 1, n_text);
    text[n_text] = 0;
    n_text = strlen(text);
    const char *path = fuzz_file("tokenizer.json", data, n_json);
    if (fuzz_outcome(pl_tokenizer_open(path, &t, &d), &d)) {
        encode(t, usual, sizeof usual - 1);
        if (n_text && pl_utf8_valid(text)) encode(t, text, n_text);
    }
    pl_tokenizer_close(&t);
    free(text);
    return 0;
}
