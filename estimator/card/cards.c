/* cards.c - looking a GPU up by the name its driver gives it, or by what people call it. */
#include "estimator/card/cards.h"

#include "estimator/base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_card cards[] = {
#define X(name, kind, gb, visible, context, sm, source, context_source)                            \
    {name, source, context_source, visible, PL_CARD_MIB(context), gb, sm, PL_CARD_##kind},
    PL_CARD_MAP(X)
#undef X
};
#define N_CARDS (sizeof cards / sizeof *cards)

static const char *const kinds[] = {"datacentre", "MIG slice", "workstation", "consumer", "laptop"};

const char *pl_card_kind_name(enum pl_card_kind k) {
    return kinds[k];
}

static bool same_text(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) return false;
    return true;
}

static bool stands_in(const char *part, size_t n, const char *name) {
    size_t all = strlen(name);
    for (size_t i = 0; i + n <= all; i++) {
        bool begins = i == 0 || !isalnum((unsigned char)name[i - 1]);
        bool ends = !isalnum((unsigned char)name[i + n]);
        if (begins && ends && same_text(name + i, part, n)) return true;
    }
    return false;
}

/* Words end at anything but letters, digits and the point of "1g.5gb". */
static size_t word_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '.')
        n++;
    return n;
}

static bool all_words_stand_in(const char *words, const char *name) {
    bool any = false;
    for (size_t n; *words; words += n) {
        n = word_length(words);
        if (n && !stands_in(words, n, name)) return false;
        any |= n > 0;
        n += n == 0;
    }
    return any;
}

const struct pl_card *pl_card_table(size_t *n) {
    *n = N_CARDS;
    return cards;
}

/* A measurement on one machine differs from another's by a quarter (driver, kernels loaded,
 * display); a guess may be off by half. */
uint64_t pl_card_context_doubt(const struct pl_card *c) {
    return c->context_bytes / (strcmp(c->context_source, "guess") == 0 ? 2 : 4);
}

struct pl_budget pl_card_budget(const struct pl_card *c) {
    return (struct pl_budget){.known = true,
                              .total_bytes = c->visible_bytes,
                              .margin_bytes = PL_CARD_MARGIN,
                              .context_bytes = c->context_bytes,
                              .doubt_bytes = pl_card_context_doubt(c),
                              .source = c->name};
}

/* --- what people type ------------------------------------------------------------------------- */

#define PLAIN_MAX 64
#define TYPED_MAX 256 /* no GPU has a longer name */

/* Lower case, letters and digits only, without the words that say no more than "a GPU". */
static void make_plain(const char *s, char out[PLAIN_MAX]) {
    static const char *const empty_words[] = {"nvidia", "geforce", "tesla", "quadro", "rtx"};
    size_t n = 0;
    for (; *s && n + 1 < PLAIN_MAX; s++)
        if (isalnum((unsigned char)*s)) out[n++] = (char)tolower((unsigned char)*s);
    out[n] = 0;
    for (size_t i = 0; i < sizeof empty_words / sizeof *empty_words; i++) {
        size_t len = strlen(empty_words[i]);
        if (strncmp(out, empty_words[i], len) == 0) memmove(out, out + len, strlen(out + len) + 1);
    }
}

static const struct pl_card *find_exact(const char *typed) {
    char want[PLAIN_MAX], have[PLAIN_MAX];
    make_plain(typed, want);
    for (size_t i = 0; i < N_CARDS && want[0]; i++) {
        make_plain(cards[i].name, have);
        if (strcmp(want, have) == 0) return &cards[i];
    }
    return NULL;
}

/* Calls `is` with every word of a name; true: it is one. */
static bool any_word(const char *name, bool (*is)(const char *word, size_t n, uint32_t with),
                     uint32_t with) {
    for (size_t n; *name; name += n + (n == 0)) {
        n = word_length(name);
        if (n && is(name, n, with)) return true;
    }
    return false;
}

/* "12GB", and the row has another size. */
static bool is_other_size(const char *word, size_t n, uint32_t gb) {
    size_t digits = strspn(word, "0123456789");
    return digits && digits + 2 == n && same_text(word + digits, "gb", 2) &&
           strtoul(word, NULL, 10) != gb;
}

/* "1g.5gb" */
static bool is_slice(const char *word, size_t n, uint32_t unused) {
    (void)unused;
    return n > 4 && isdigit((unsigned char)word[0]) && same_text(word + 1, "g.", 2);
}

/* A GPU of a laptop has other memory than the one that is otherwise called the same. */
static bool is_laptop(const char *word, size_t n, uint32_t unused) {
    (void)unused;
    return n == 6 && same_text(word, "laptop", 6);
}

const struct pl_card *pl_card_find(const char *name) {
    const bool laptop = any_word(name, is_laptop, 0), slice = any_word(name, is_slice, 0);
    for (size_t i = 0; i < N_CARDS; i++) {
        if (laptop && cards[i].kind != PL_CARD_LAPTOP) continue;
        if (slice && cards[i].kind != PL_CARD_MIG) continue;
        if (all_words_stand_in(cards[i].name, name)) return &cards[i];
    }
    return NULL;
}

/* "x2", "2x" */
static bool is_count(const char *word, size_t n, uint32_t unused) {
    (void)unused;
    size_t digits = strspn(word + (tolower((unsigned char)word[0]) == 'x'), "0123456789");
    return n > 1 && digits + 1 == n &&
           (tolower((unsigned char)word[0]) == 'x' || tolower((unsigned char)word[n - 1]) == 'x');
}

const struct pl_card *pl_card_named(const char *typed, bool *ambiguous) {
    *ambiguous = false;
    if (strnlen(typed, TYPED_MAX + 1) > TYPED_MAX) return NULL;
    const bool slice = any_word(typed, is_slice, 0);
    const struct pl_card *best = find_exact(typed);
    if (!best) best = pl_card_find(typed);
    if (best && (best->kind == PL_CARD_MIG) == slice)
        return slice || !any_word(typed, is_other_size, best->nameplate_gb) ? best : NULL;
    best = NULL;
    for (size_t i = 0; i < N_CARDS; i++) {
        if ((cards[i].kind == PL_CARD_MIG) != slice) continue;
        if (!all_words_stand_in(typed, cards[i].name)) continue;
        *ambiguous |= best != NULL;
        if (!best || cards[i].visible_bytes < best->visible_bytes) best = &cards[i];
    }
    return best;
}

size_t pl_card_nearest(const char *typed, const char **out, size_t most) {
    const char *names[N_CARDS];
    for (size_t i = 0; i < N_CARDS; i++)
        names[i] = cards[i].name;
    return pl_text_nearest_few(typed, names, N_CARDS, out, most);
}

/* Words of devices that are no NVIDIA GPUs. */
static bool is_foreign(const char *word, size_t n, uint32_t unused) {
    static const char *const words[] = {"amd",   "radeon", "instinct", "mi210",  "mi250", "mi250x",
                                        "mi300", "mi300x", "mi325x",   "mi355x", "rx",    "apple",
                                        "m1",    "m2",     "m3",       "m4",     "tpu",   "gaudi",
                                        "intel", "arc",    "trainium"};
    (void)unused;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && same_text(word, words[i], n)) return true;
    return false;
}

static pl_err refuse_foreign(const char *typed, struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_USAGE, "`%s`: the kernels run on NVIDIA GPUs and on the CPU alone",
                typed);
    pl_diag_hint(d, "`--vram SIZE` says how many bytes the job needs on a GPU of that size");
    return PL_ERR_USAGE;
}

static pl_err refuse_several(const char *typed, struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_USAGE, "`%s` is more than one GPU, and a job runs on one", typed);
    pl_diag_hint(d, "name one of them; the memory of several is not one memory");
    return PL_ERR_USAGE;
}

pl_err pl_card_require(const char *typed, const struct pl_card **out, bool *ambiguous,
                       struct pl_diag *d) {
    const char *near[3];
    struct pl_text hint = {0};
    *out = NULL;
    if (any_word(typed, is_foreign, 0)) return refuse_foreign(typed, d);
    if (any_word(typed, is_count, 0)) return refuse_several(typed, d);
    if ((*out = pl_card_named(typed, ambiguous))) return PL_ERR_OK;
    size_t n = pl_card_nearest(typed, near, sizeof near / sizeof *near);
    for (size_t i = 0; i < n; i++)
        pl_text_addf(&hint, "%s%s", i == 0 ? "did you mean " : i + 1 == n ? " or " : ", ", near[i]);
    pl_text_addf(&hint, "%s`plimsoll cards` lists them", n ? "? " : "");
    pl_diag_set(d, PL_ERR_USAGE, "no GPU of the table is called `%s`", typed);
    pl_diag_hint(d, "%s", pl_text_str(&hint));
    pl_text_finish(&hint);
    return PL_ERR_USAGE;
}

pl_err pl_card_check_sm(const char *gpu, uint32_t sm, struct pl_diag *d) {
    if (sm >= PL_CARD_OLDEST_SM) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_NO_DEVICE,
                       "%s has compute capability %u.%u; the kernels need %d.%d (Turing) or later",
                       gpu, sm / 10, sm % 10, PL_CARD_OLDEST_SM / 10, PL_CARD_OLDEST_SM % 10);
}

/* Tiles of 512 columns take 99 KiB of a block's shared memory; before Ampere it has 64. */
uint32_t pl_card_head_dim(uint32_t sm) {
    if (sm == 0) return UINT32_MAX;
    return sm >= PL_CARD_OLDEST_BF16_SM ? 512 : 256;
}
