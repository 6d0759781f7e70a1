/* cards.c - looking a GPU up by the name its driver gives it. */
#include "estimator/card/cards.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const struct pl_card cards[] = {
#define X(name, gb, visible, context, sm, source) {name, source, visible, context, gb, sm},
    PL_CARD_MAP(X)
#undef X
};

static bool same_text(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) return false;
    return true;
}

static bool stands_in(const char *part, const char *name) {
    size_t n = strlen(part), all = strlen(name);
    for (size_t i = 0; i + n <= all; i++) {
        bool begins = i == 0 || !isalnum((unsigned char)name[i - 1]);
        bool ends = !isalnum((unsigned char)name[i + n]);
        if (begins && ends && same_text(name + i, part, n)) return true;
    }
    return false;
}

const struct pl_card *pl_card_find(const char *name) {
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (stands_in(cards[i].name, name)) return &cards[i];
    return NULL;
}

const struct pl_card *pl_card_table(size_t *n) {
    *n = sizeof cards / sizeof *cards;
    return cards;
}
