/* safetensors_write.c - the header of a file to be written. */
#include "estimator/base/checked.h"
#include "runtime/checkpoint/safetensors.h"

#include <string.h>

static bool add_item(struct pl_text *out, const struct pl_st_item *item, uint64_t *offset) {
    uint64_t bytes = pl_dtype_bytes(item->dtype), end;
    for (uint32_t i = 0; i < item->rank; i++)
        if (!pl_u64_mul(bytes, item->dims[i], &bytes)) return false;
    if (!pl_u64_add(*offset, bytes, &end)) return false;
    pl_text_addf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", item->name,
                 pl_dtype_file_name(item->dtype));
    for (uint32_t i = 0; i < item->rank; i++)
        pl_text_addf(out, "%s%llu", i ? "," : "", (unsigned long long)item->dims[i]);
    pl_text_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*offset,
                 (unsigned long long)end);
    *offset = end;
    return true;
}

pl_err pl_st_header(const struct pl_st_item *items, uint64_t n, struct pl_text *out,
                    struct pl_diag *d) {
    static const char word[8], spaces[] = "       ";
    uint64_t offset = 0;
    pl_text_addn(out, word, sizeof word);
    /* transformers has refused files that do not say which framework wrote them. */
    pl_text_add(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint64_t i = 0; i < n; i++)
        if (!add_item(out, &items[i], &offset))
            return pl_diag_set(d, PL_ERR_OVERFLOW, "tensor `%s` does not fit a file",
                               items[i].name);
    pl_text_add(out, "}");
    pl_text_addn(out, spaces, (8 - out->len % 8) % 8);
    if (out->failed) return pl_host_oom(d, "the header of a safetensors file");
    if (out->len - sizeof word > PL_ST_MAX_HEADER)
        return pl_diag_set(d, PL_ERR_CHECKPOINT_FORMAT, "%llu tensors are too many for one file",
                           (unsigned long long)n);
    for (int i = 0; i < 8; i++) /* little-endian */
        out->data[i] = (char)(unsigned char)((uint64_t)(out->len - sizeof word) >> 8 * i);
    return PL_ERR_OK;
}
