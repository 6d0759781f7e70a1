#include "estimator/card/links.h"

#include "estimator/base/text.h"

#include <string.h>
#include <strings.h>

static const struct pl_link links[] = {
#define X(name, rate, kind, source) {name, source, rate, PL_LINK_##kind##_SECONDS},
    PL_LINK_MAP(X)
#undef X
};
#define N_LINKS (sizeof links / sizeof *links)

/* Cards by words of their names, the more special first. MIG slices reach no other slice but
 * through the PCIe of their GPU. Source: the product briefs of the cards. */
static const struct {
    const char *word, *link;
} cards[] = {
    {"g.", "pcie4"},       {"B200", "nvlink5"}, {"GH200", "nvlink4"}, {"H200", "nvlink4"},
    {"H100 NVL", "pcie5"}, {"H100", "nvlink4"}, {"A100", "nvlink3"},  {"PRO 6000", "pcie5"},
    {"RTX 50", "pcie5"},   {"T4", "pcie3"},     {"Quadro", "pcie3"},  {"T1000", "pcie3"},
    {"TITAN", "pcie3"},    {"RTX 20", "pcie3"}, {"GTX 16", "pcie3"},  {"V100", "pcie3"},
    {"P100", "pcie3"},
};
#define OTHER_CARDS "pcie4"

const struct pl_link *pl_link_table(size_t *n) {
    *n = N_LINKS;
    return links;
}

static const struct pl_link *find_link(const char *name) {
    for (size_t i = 0; i < N_LINKS; i++)
        if (strcasecmp(links[i].name, name) == 0) return &links[i];
    return NULL;
}

const struct pl_link *pl_link_of_card(const char *card, const char *typed) {
    const char *name = OTHER_CARDS;
    for (size_t i = sizeof cards / sizeof *cards; card && i > 0; i--)
        if (strstr(card, cards[i - 1].word)) name = cards[i - 1].link;
    if (typed && strcasestr(typed, "pcie") && strncmp(name, "nvlink", 6) == 0)
        name = strcmp(name, "nvlink3") == 0 ? "pcie4" : "pcie5";
    return find_link(name);
}

pl_err pl_link_require(const char *typed, const char *card, const struct pl_link **out,
                       struct pl_diag *d) {
    struct pl_text names = {0};
    *out = find_link(typed);
    if (strcasecmp(typed, "nvlink") == 0) {
        *out = pl_link_of_card(card, NULL);
        if (strncmp((*out)->name, "nvlink", 6) != 0) *out = find_link("nvlink4");
    }
    if (*out) return PL_ERR_OK;
    for (size_t i = 0; i < N_LINKS; i++)
        pl_text_addf(&names, ", %s", links[i].name);
    pl_diag_set(d, PL_ERR_USAGE, "no link is called `%.40s`", typed);
    pl_diag_hint(d, "nvlink%s", pl_text_str(&names));
    pl_text_finish(&names);
    return PL_ERR_USAGE;
}
