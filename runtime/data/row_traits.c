#include "runtime/data/row_traits.h"

#include <string.h>

static const struct {
    const char *key, *brief, *kind, *says, *advice;
} table[] = {
#define X(name, key, brief, kind, says, advice) {key, brief, kind, says, advice},
    PL_TRAITS_TABLE(X)
#undef X
};

void pl_file_traits_count(struct pl_file_traits *t, const struct pl_row_traits *r, uint64_t line) {
    for (int i = 0; i < PL_TRAITS; i++) {
        if (!r->n[i]) continue;
        if (!t->of[i].rows++) t->of[i].line = line;
        t->of[i].all += r->n[i];
    }
    if (!t->role[0]) memcpy(t->role, r->role, sizeof t->role);
}

void pl_file_traits_note(const struct pl_file_traits *t, const char *path, struct pl_text *notes) {
    for (int i = 0; i < PL_TRAITS; i++) {
        const uint64_t rows = t->of[i].rows, all = t->of[i].all;
        if (!rows || !table[i].says[0]) continue;
        pl_text_addf(notes, "%s%s:%llu: %llu row%s %s", table[i].kind, path,
                     (unsigned long long)t->of[i].line, (unsigned long long)rows,
                     rows == 1 ? "" : "s", table[i].says);
        if (i == PL_TRAIT_UNKNOWN_ROLE) pl_text_addf(notes, " `%s`", t->role);
        if (all > rows) pl_text_addf(notes, " (%llu in all)", (unsigned long long)all);
        pl_text_add(notes, "; this is the first");
        if (table[i].advice[0]) pl_text_addf(notes, "; %s", table[i].advice);
        pl_text_add(notes, "\n");
    }
}

const char *pl_trait_key(enum pl_trait trait) {
    return table[trait].key;
}

const char *pl_trait_brief(enum pl_trait trait) {
    return table[trait].brief;
}
