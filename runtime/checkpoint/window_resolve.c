/* window_resolve.c - every window of a list in files, and the reasons to refuse them. */
#include "runtime/checkpoint/window_resolve.h"

#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/plain_names.h"
#include "runtime/checkpoint/prequantised.h"

#include <string.h>

static pl_err check_shape(const struct pl_window *w, pl_err err, struct pl_diag *d) {
    const struct pl_st_entry *e = w->entry;
    char have[PL_ST_SHAPE_TEXT], want[PL_ST_SHAPE_TEXT];
    if (pl_window_fits(w, e, want)) return PL_ERR_OK;
    if (w->is_copy && e->dims[0] != w->dims[0])
        pl_diag_hint(d,
                     "the vocabulary was resized to %llu for this adapter: save its base after "
                     "resize_token_embeddings(%llu), and name that as the model",
                     (unsigned long long)e->dims[0], (unsigned long long)e->dims[0]);
    return pl_diag_at(d, err, w->file->path, 0, 0,
                      "%s: tensor `%s` has shape %s, the model wants %s", w->file->path, e->name,
                      pl_st_shape_text(e->rank, e->dims, have), want);
}

static pl_err check_type(const struct pl_window *w, enum pl_window_match match, pl_err err,
                         struct pl_diag *d) {
    const struct pl_st_entry *e = w->entry;
    bool exact = match == PL_MATCH_EXACT;
    if (exact ? e->dtype == w->dtype : pl_convert_reads(e->dtype)) return PL_ERR_OK;
    return pl_diag_at(d, err, w->file->path, 0, 0, "%s: tensor `%s` is stored as %s, not as %s",
                      w->file->path, e->name, e->dtype_name,
                      exact ? pl_dtype_file_name(w->dtype) : "F32, BF16 or F16");
}

static pl_err report_missing(const struct pl_windows *w, const struct pl_weight_files *f,
                             pl_err err, struct pl_diag *d) {
    const struct pl_window *first = NULL;
    uint32_t more = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->items[i].entry) continue;
        if (first)
            more++;
        else
            first = &w->items[i];
    }
    struct pl_text text = {0}, hint = {0};
    pl_text_addf(&text, "%s: tensor `%s` is missing", f->path, first->name);
    if (more) pl_text_addf(&text, " (and %u more)", more);
    pl_plain_names_suggest(f, w, first->name, &text, &hint);
    pl_diag_at(d, err, f->path, 0, 0, "%s", pl_text_str(&text));
    if (hint.len) pl_diag_hint(d, "%s", pl_text_str(&hint));
    pl_text_finish(&text);
    pl_text_finish(&hint);
    return err;
}

/* The tensors that adapters of PEFT hold besides the matrices of a language model. */
static const struct {
    const char *part, *of;
} others[] = {
    {"vision", "it is of another part of a multimodal model"},
    {"visual", "it is of another part of a multimodal model"},
    {"audio", "it is of another part of a multimodal model"},
    {"multi_modal", "it is of another part of a multimodal model"},
    {"lora_magnitude_vector", "it is of DoRA"},
    {"lora_B.bias", "it is of `lora_bias`"},
    {"token_adapter", "it is of `trainable_token_indices`"},
    {"trainable_tokens", "it is of `trainable_token_indices`"},
    {"score.", "it is the head of a classifier"},
    {"classifier.", "it is the head of a classifier"},
    {"embed_tokens.",
     "it is a saved embedding, and this command reads no weights to compare it with"},
    {"lm_head.", "it is a saved head, and this command reads no weights to compare it with"},
};

static pl_err refuse_surplus(const char *path, const char *name, pl_err err, struct pl_diag *d) {
    pl_diag_at(d, err, path, 0, 0, "%s: tensor `%s` has no place in this run", path, name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i].part)) {
            pl_diag_hint(d,
                         "%s: plain LoRA of the language model is read; PEFT's merge_and_unload() "
                         "can merge others",
                         others[i].of);
            break;
        }
    return err;
}

/* Names something of the files that no window asked for. Windows are distinct, so with all of them
 * found a surplus shows in the count. */
static pl_err check_surplus(const struct pl_windows *w, const struct pl_weight_files *f, pl_err err,
                            struct pl_diag *d) {
    uint64_t stored = 0;
    for (uint32_t i = 0; i < f->n; i++)
        stored += f->files[i].n;
    if (stored == w->n) return PL_ERR_OK;
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint64_t k = 0; k < f->files[i].n; k++) {
            const struct pl_st_entry *e = &f->files[i].entries[k];
            uint32_t j = 0;
            while (j < w->n && w->items[j].entry != e)
                j++;
            if (j == w->n) return refuse_surplus(f->files[i].path, e->name, err, d);
        }
    }
    return PL_ERR_OK;
}

pl_err pl_windows_resolve(struct pl_windows *w, const struct pl_weight_files *f,
                          enum pl_window_match match, pl_err err, struct pl_diag *d) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < w->n; i++)
        found += pl_window_find(f, &w->items[i]);
    if (found < w->n) return report_missing(w, f, err, d);
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->items[i].quantised && w->items[i].entry->dtype == PL_DTYPE_U8) {
            PL_TRY(pl_window_find_codes(&w->items[i], f, err, d));
            continue;
        }
        if (w->items[i].quantised && !pl_quant_has_absmax(w->items[i].quant))
            PL_TRY(pl_window_check_mxfp4(&w->items[i], err, d));
        PL_TRY(check_shape(&w->items[i], err, d));
        PL_TRY(check_type(&w->items[i], match, err, d));
    }
    return match == PL_MATCH_CONVERT ? PL_ERR_OK : check_surplus(w, f, err, d);
}
