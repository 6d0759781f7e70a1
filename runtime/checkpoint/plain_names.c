#include "runtime/checkpoint/plain_names.h"
#include "runtime/checkpoint/windows.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum place {
    AT_START,
    AFTER_MODEL,
    ANYWHERE,
    BEFORE_WEIGHTS /* anywhere, but not before the A and B of the inner one of two adapters */
};

/* Parts of names that say how a model was wrapped and nothing of what it is, as PyTorch 2.9, PEFT
 * 0.21 and transformers 5 write them. `who` is told in a note; NULL: transformers or PEFT reads
 * such files without a word. */
static const struct wrapper {
    const char *part, *who;
    enum place place;
    bool of_model, of_adapter;
} wrappers[] = {
    {"_orig_mod.", "torch.compile", ANYWHERE, true, true},
    {"_fsdp_wrapped_module.", "FSDP", ANYWHERE, true, true},
    {"_checkpoint_wrapped_module.", "activation checkpointing", ANYWHERE, true, true},
    {"module.", "DistributedDataParallel", AT_START, true, true},
    {"base_model.model.", "PEFT", AT_START, true, false},
    {"base_model.model.", NULL, AT_START, false, true},
    {"base_layer.", "PEFT", BEFORE_WEIGHTS, true, false},
    {"modules_to_save.default.", NULL, ANYWHERE, false, true},
    {"default.", NULL, ANYWHERE, false, true},
    {"language_model.", NULL, AFTER_MODEL, true,
     true}, /* multimodal: as published, and as v5 saves */
};
enum { N_WRAPPERS = sizeof wrappers / sizeof *wrappers };

static const char model[] = "model.";
/* The names of a model without its head, whose files transformers loads through
 * base_model_prefix. */
static const char *const bare[] = {"layers.", "embed_tokens.", "norm."};

struct pl_plain_name {
    char *name;                  /* owned */
    const struct wrapper *first; /* that was taken off and is told; NULL: none */
    const struct pl_st_file *file;
    const struct pl_st_entry *entry;
};

static bool begins(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

/* The place of a part in a name, at the beginning of a component; NULL: it does not. */
static char *find_part(char *name, const struct wrapper *x) {
    char *at = name;
    if (x->place == AFTER_MODEL && begins(at, model)) at += strlen(model);
    if (x->place < ANYWHERE) return begins(at, x->part) ? at : NULL;
    while ((at = strstr(at, x->part)) && at > name && at[-1] != '.')
        at++;
    const bool inner = at && x->place == BEFORE_WEIGHTS && begins(at + strlen(x->part), "lora_");
    return inner ? NULL : at;
}

/* Every round takes off a part, so that they end; *first is the first that is told. */
static void strip(char *name, bool of_adapter, const struct wrapper **first) {
    *first = NULL;
    for (size_t i = 0; i < N_WRAPPERS;) {
        const struct wrapper *x = &wrappers[i];
        char *at = (of_adapter ? x->of_adapter : x->of_model) ? find_part(name, x) : NULL;
        if (!at) {
            i++;
            continue;
        }
        memmove(at, at + strlen(x->part), strlen(at + strlen(x->part)) + 1);
        if (!*first && x->who) *first = x;
        i = 0;
    }
}

/* malloc'd; NULL when out of memory. */
static char *plain_of(const char *name, bool of_adapter, const struct wrapper **first) {
    static const char suffix[] = ".default"; /* of lora_embedding_A, a parameter without a module */
    char *out = pl_malloc(strlen(name) + sizeof model);
    if (!out) return NULL;
    strcpy(out, name);
    strip(out, of_adapter, first);
    const size_t n = strlen(out);
    if (of_adapter && n > strlen(suffix) && strcmp(out + n - strlen(suffix), suffix) == 0)
        out[n - strlen(suffix)] = 0;
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        if (!begins(out, bare[i])) continue;
        memmove(out + strlen(model), out, strlen(out) + 1);
        memcpy(out, model, strlen(model));
        break;
    }
    return out;
}

static int by_name(const void *a, const void *b) {
    const struct pl_plain_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The base under the names that PEFT gives it, and the modules that were trained whole. */
static pl_err check_merged(const struct pl_weight_files *f, struct pl_diag *d) {
    const struct pl_plain_name *base = NULL;
    const struct pl_st_file *file = NULL;
    const char *adapter = NULL;
    for (uint64_t i = 0; i < f->n_plain; i++)
        if (f->plain[i].first && strstr(f->plain[i].entry->name, "base_layer.") &&
            !strstr(f->plain[i].name, "base_layer."))
            base = &f->plain[i];
    for (uint32_t i = 0; base && !adapter && i < f->n; i++)
        for (uint64_t k = 0; k < f->files[i].n && !adapter; k++) {
            file = &f->files[i];
            if (strstr(file->entries[k].name, ".lora_")) adapter = file->entries[k].name;
        }
    if (!adapter) return PL_ERR_OK;
    pl_err err = pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, file->path, 0, 0,
                            "%s: the file holds a base (`%s`) and an adapter that is not merged "
                            "into it (`%s`)",
                            file->path, base->entry->name, adapter);
    pl_diag_hint(d, "save what merge_and_unload() of the PeftModel returns, or its base and its "
                    "adapter each in a directory of its own");
    return err;
}

static pl_err add_names(struct pl_weight_files *f, const struct pl_st_file *file,
                        struct pl_diag *d) {
    for (uint64_t k = 0; k < file->n; k++) {
        struct pl_plain_name *x = &f->plain[f->n_plain];
        *x = (struct pl_plain_name){.file = file, .entry = &file->entries[k]};
        x->name = plain_of(file->entries[k].name, f->of_adapter, &x->first);
        if (!x->name) return pl_host_oom(d, "the names of tensors");
        if (!f->of_adapter && strcmp(x->name, file->entries[k].name) == 0)
            free(x->name); /* windows ask for it as it is; those of adapters have a prefix */
        else
            f->n_plain++;
    }
    return PL_ERR_OK;
}

pl_err pl_plain_names_make(struct pl_weight_files *f, struct pl_diag *d) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        n += f->files[i].n;
    f->plain = pl_calloc((size_t)n + 1, sizeof *f->plain);
    if (!f->plain) return pl_host_oom(d, "the names of tensors");
    for (uint32_t i = 0; i < f->n; i++)
        PL_TRY(add_names(f, &f->files[i], d));
    qsort(f->plain, f->n_plain, sizeof *f->plain, by_name);
    for (uint64_t i = 1; i < f->n_plain; i++) {
        const struct pl_plain_name *x = &f->plain[i - 1], *y = &f->plain[i];
        if (by_name(x, y) != 0) continue;
        pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, x->file->path, 0, 0,
                   "%s: `%s` and `%s` are both the tensor `%s`", x->file->path, x->entry->name,
                   y->entry->name, x->name);
        pl_diag_hint(d, "keep one of the two in the file");
        return PL_ERR_CHECKPOINT_FORMAT;
    }
    return f->of_adapter ? PL_ERR_OK : check_merged(f, d);
}

void pl_plain_names_finish(struct pl_weight_files *f) {
    for (uint64_t i = 0; i < f->n_plain; i++)
        free(f->plain[i].name);
    free(f->plain);
}

static const struct pl_plain_name *find_plain(const struct pl_weight_files *f, const char *name) {
    char plain[PL_WINDOW_NAME + sizeof model];
    const struct wrapper *ignored;
    const struct pl_plain_name key = {.name = plain};
    if (strlen(name) >= PL_WINDOW_NAME) return NULL;
    strcpy(plain, name);
    strip(plain, f->of_adapter, &ignored);
    return bsearch(&key, f->plain, f->n_plain, sizeof *f->plain, by_name);
}

bool pl_plain_names_find(const struct pl_weight_files *f, struct pl_window *w) {
    const struct pl_plain_name *x = f->n_plain ? find_plain(f, w->name) : NULL;
    if (!x) return false;
    w->file = x->file;
    w->entry = x->entry;
    return true;
}

void pl_plain_names_note(const struct pl_windows *w, const struct pl_weight_files *f,
                         struct pl_text *notes) {
    const struct pl_plain_name *first = NULL;
    const struct pl_window *of = NULL;
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct pl_window *x = &w->items[i];
        if (!x->entry || strcmp(x->entry->name, x->name) == 0) continue;
        const struct pl_plain_name *p = find_plain(f, x->name);
        if (!p || p->entry != x->entry || !p->first) continue;
        n++;
        if (!first) of = x;
        if (!first) first = p;
    }
    if (!first) return;
    pl_text_addf(notes, "%s: `%s` is read as `%s`, without the `%s` of %s", f->path,
                 first->entry->name, of->name, first->first->part, first->first->who);
    if (n > 1) pl_text_addf(notes, ", and %llu more like it", (unsigned long long)n - 1);
    pl_text_add(notes, "\n");
}

/* ---- what is there instead ---- */

/* Whole components at the end that two names share, in bytes. */
static size_t shared_end(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    size_t shared = 0;
    for (size_t i = 1; i <= n && i <= m && a[n - i] == b[m - i]; i++)
        if (i == n || i == m ? (i == n || a[n - i - 1] == '.') && (i == m || b[m - i - 1] == '.')
                             : a[n - i - 1] == '.' && b[m - i - 1] == '.')
            shared = i;
    return shared;
}

static uint64_t count_prefixed(const struct pl_weight_files *f, const char *prefix, size_t length) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; k < f->files[i].n; k++)
            n += strncmp(f->files[i].entries[k].name, prefix, length) == 0;
    return n;
}

static bool is_wanted(const struct pl_windows *w, const struct pl_st_entry *e) {
    for (uint32_t i = 0; i < w->n; i++)
        if (w->items[i].entry == e) return true;
    return false;
}

void pl_plain_names_suggest(const struct pl_weight_files *f, const struct pl_windows *w,
                            const char *missing, struct pl_text *message, struct pl_text *hint) {
    static const char weight[] = ".weight"; /* alone it says nothing */
    const struct pl_st_entry *at = NULL;
    size_t best = sizeof weight;
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; k < f->files[i].n; k++, n++) {
            const size_t shared = shared_end(missing, f->files[i].entries[k].name);
            if (shared <= best) continue;
            best = shared;
            at = &f->files[i].entries[k];
        }
    if (!at && n)
        pl_text_addf(message, "; the file has %llu tensor%s, such as `%s`", (unsigned long long)n,
                     n == 1 ? "" : "s", f->files[0].n ? f->files[0].entries[0].name : "");
    if (!n) pl_text_add(message, "; the file has no tensor");
    if (!at || is_wanted(w, at)) return;
    const char *near = at->name;
    const size_t prefix = strlen(near) - best;
    pl_text_addf(message, "; the file has `%s` instead", near);
    if (best < strlen(missing) || !prefix) return;
    pl_text_addf(message, ": %llu of %llu names begin with `%.*s`",
                 (unsigned long long)count_prefixed(f, near, prefix), (unsigned long long)n,
                 (int)prefix, near);
    pl_text_addf(hint, "write the file again without `%.*s` at the beginning of the names",
                 (int)prefix, near);
}
