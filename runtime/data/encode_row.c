#include "runtime/data/encode_row.h"

static pl_err outside(const struct pl_encoder *e, int32_t id, struct pl_diag *d) {
    const char *piece = pl_tokenizer_piece(e->tokenizer, id);
    pl_diag_set(d, PL_ERR_DATA_FIELD, "token %d is outside the vocabulary of %llu tokens: `%.60s`",
                id, (unsigned long long)e->vocab, piece ? piece : "");
    pl_diag_hint(d, "let transformers resize the model: " PL_ENCODE_RESIZE);
    return PL_ERR_DATA_FIELD;
}

pl_err pl_encode_take_tokens(const struct pl_encoder *e, bool trained, struct pl_sample *out,
                             struct pl_diag *d) {
    uint64_t n = e->tokens.n;
    if (n == UINT64_MAX || !pl_sample_reserve(out, n + 1))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a row of %llu tokens",
                           (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        int32_t id = e->tokens.ids[i];
        if (id < 0 || (uint64_t)id >= e->vocab) return outside(e, id, d);
        out->ids[i] = id;
        out->labels[i] = trained ? id : PL_LABEL_MASKED;
    }
    out->n = n;
    out->beyond = e->tokens.all - n;
    out->trained_beyond = trained && out->beyond;
    return PL_ERR_OK;
}

uint64_t pl_encode_token_at(const struct pl_encoder *e, size_t at) {
    uint64_t low = 0, high = e->tokens.n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (e->tokens.starts[mid] < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void pl_encode_label(const struct pl_encoder *e, struct pl_sample *out, size_t begin, size_t end,
                     bool trained) {
    for (uint64_t i = pl_encode_token_at(e, begin); i < e->tokens.n && e->tokens.starts[i] < end;
         i++)
        out->labels[i] = trained ? out->ids[i] : PL_LABEL_MASKED;
}

bool pl_encode_is_inside(const struct pl_encoder *e, size_t at) {
    const uint64_t i = pl_encode_token_at(e, at);
    if (i == e->tokens.n) return i && !pl_encode_is_beyond(e, at);
    return i && e->tokens.starts[i] > at;
}

bool pl_encode_is_beyond(const struct pl_encoder *e, size_t at) {
    const uint64_t n = e->tokens.n;
    return e->tokens.all > n && (!n || at > e->tokens.starts[n - 1]);
}
