/* cmd_cards.c - `plimsoll cards`: the table of GPUs. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/units.h"
#include "estimator/card/cards.h"

static json_t *card_json(const struct pl_card *c) {
    char capability[16];
    snprintf(capability, sizeof capability, "%u.%u", c->sm / 10, c->sm % 10);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:s, s:s}", "name", c->name,
                     "kind", pl_card_kind_name(c->kind), "nameplate_gb",
                     (json_int_t)c->nameplate_gb, "usable_bytes", (json_int_t)c->visible_bytes,
                     "context_bytes", (json_int_t)c->context_bytes, "context_doubt_bytes",
                     (json_int_t)pl_card_context_doubt(c), "margin_bytes",
                     (json_int_t)PL_CARD_MARGIN, "compute_capability", capability, "trains",
                     (int)(c->sm >= PL_CARD_OLDEST_SM), "source", c->source, "context_source",
                     c->context_source);
}

static json_t *table_json(const struct pl_card *cards, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, card_json(&cards[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list ? json_pack("{s:o}", "cards", list) : NULL;
}

static void print_card(const struct pl_card *c) {
    char usable[PL_BYTES_TEXT];
    printf("%-22s %-11s %6u GB %11s %4u MiB %3u.%u%c %s, %s\n", c->name, pl_card_kind_name(c->kind),
           c->nameplate_gb, pl_bytes_text(c->visible_bytes, usable),
           (unsigned)(c->context_bytes >> 20), c->sm / 10, c->sm % 10,
           c->sm >= PL_CARD_OLDEST_SM ? ' ' : '*', c->source, c->context_source);
}

/* Slices come first in the table for the sake of matching; a reader wants them last. */
static void print_table(const struct pl_card *cards, size_t n) {
    printf("%-22s %-11s %9s %11s %8s %5s  %s\n", "GPU", "kind", "nameplate", "usable", "context",
           "sm", "sources");
    for (int slices = 0; slices < 2; slices++)
        for (size_t i = 0; i < n; i++)
            if ((cards[i].kind == PL_CARD_MIG) == slices) print_card(&cards[i]);
    printf(
        "* the kernels need %d.%d: plans can be compared with such a card, but it cannot train\n",
        PL_CARD_OLDEST_SM / 10, PL_CARD_OLDEST_SM % 10);
}

int pl_cmd_cards(const struct pl_cli *cli) {
    size_t n;
    const struct pl_card *cards = pl_card_table(&n);
    struct pl_diag d = {0};
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        print_table(cards, n);
        return 0;
    }
    return pl_cli_print_json(table_json(cards, n), &d) == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
