/* fuzz_receipt.c - a receipt from elsewhere: what is taken adds up, and compares with itself. */
#include "estimator/inquiry/receipt.h"
#include "estimator/inquiry/receipt_diff.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* A smaller one with a word of everything, to compare with. */
static const char other[] =
    "{\"receipt\": 1, \"version\": \"0\", \"measured\": null, \"asked\": {\"mode\": \"lora\", "
    "\"model\": {\"layers\": 1}, \"device\": {}, \"settings\": {\"lora_r\": \"8\"}}, "
    "\"decided\": {\"batch_size\": \"1\"}, \"digests\": {\"question\": \"\", \"program\": \"\", "
    "\"plan\": \"\"}, \"planned\": {\"verdict\": \"fits\", \"bytes\": {\"total\": 3, \"arena\": 2, "
    "\"context\": 1, \"host\": 0}, \"ledger\": [{\"category\": \"weights\", \"bytes\": 2}], "
    "\"host_ledger\": []}}";

static void compare(const json_t *a, const json_t *b, bool same) {
    const struct pl_growth_allowance none = {0};
    struct pl_receipt_diff x;
    struct pl_diag d = {0};
    struct pl_text text = {0};
    uint64_t device = 0, host = 0;
    FUZZ_CHECK(fuzz_outcome(pl_receipt_compare(a, b, &none, &x, &d), &d));
    for (size_t i = 0; i < x.n_rows; i++) /* modulo 2^64 */
        *(strcmp(x.rows[i].memory, "device") == 0 ? &device : &host) +=
            x.rows[i].after - x.rows[i].before;
    /* a line of the host may call its memory so: then only the sum of both is known */
    FUZZ_CHECK(device + host == x.device.after - x.device.before + x.host.after - x.host.before);
    FUZZ_CHECK(!same || (x.n_rows == 0 && x.within && x.why.len == 0));
    pl_receipt_diff_text(&x, &text);
    json_t *o = pl_receipt_diff_json(&x);
    FUZZ_CHECK(o && !text.failed);
    json_decref(o);
    pl_text_finish(&text);
    pl_receipt_diff_finish(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_diag d = {0};
    json_t *receipt, *small;
    if (!fuzz_outcome(pl_receipt_parse((const char *)data, size, "r.json", &receipt, &d), &d))
        return 0;
    FUZZ_CHECK(pl_receipt_parse(other, strlen(other), "other", &small, &d) == PL_ERR_OK);
    compare(receipt, receipt, true);
    compare(small, receipt, false);
    compare(receipt, small, false);
    json_decref(receipt);
    json_decref(small);
    return 0;
}
