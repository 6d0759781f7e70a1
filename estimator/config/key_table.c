#include "estimator/config/key_table.h"

#include <stdio.h>
#include <string.h>

static const struct pl_key_info infos[PL_KEY_COUNT] = {
#define X(key, type, def, lo, hi, choices, help) {#key, #type, def, choices, help, lo, hi},
    PL_CONFIG_KEYS(X)
#undef X
};

static const enum pl_key_class classes[PL_KEY_COUNT] = {
#define X(key, class) [PL_KEY_##key] = PL_KEY_##class,
    PL_CONFIG_KEY_CLASSES(X)
#undef X
};

static const struct {
    const char *name;
    enum pl_key_id key;
} synonyms[] = {
#define X(synonym, key) {#synonym, PL_KEY_##key},
    PL_CONFIG_SYNONYMS(X)
#undef X
};
#define N_SYNONYMS (sizeof synonyms / sizeof *synonyms)

const struct pl_key_info *pl_key_table(uint32_t *n) {
    *n = PL_KEY_COUNT;
    return infos;
}

enum pl_key_class pl_key_class(enum pl_key_id key) {
    return classes[key];
}

enum pl_key_id pl_key_find(const char *name) {
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        if (strcmp(name, infos[i].key) == 0) return (enum pl_key_id)i;
    for (size_t i = 0; i < N_SYNONYMS; i++)
        if (strcmp(name, synonyms[i].name) == 0) return synonyms[i].key;
    return PL_KEY_COUNT;
}

const char *pl_key_nearest(const char *name) {
    const char *names[PL_KEY_COUNT + N_SYNONYMS];
    size_t n = 0;
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        names[n++] = infos[i].key;
    for (size_t i = 0; i < N_SYNONYMS; i++)
        if (strlen(synonyms[i].name) > 2) /* `r` and `lr` are near to any short word */
            names[n++] = synonyms[i].name;
    const char *near = pl_text_nearest(name, names, n);
    return near ? infos[pl_key_find(near)].key : NULL;
}

bool pl_key_choice(const char *choices, uint32_t i, char buf[PL_CHOICE_BYTES]) {
    while (i && (choices = strchr(choices, '|'))) {
        choices++;
        i--;
    }
    if (!choices || !*choices) return false;
    snprintf(buf, PL_CHOICE_BYTES, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

void pl_key_write_synonyms(enum pl_key_id key, struct pl_text *out) {
    const char *separator = "";
    for (size_t i = 0; i < N_SYNONYMS; i++) {
        if (synonyms[i].key != key) continue;
        pl_text_addf(out, "%s`%s`", separator, synonyms[i].name);
        separator = ", ";
    }
}
