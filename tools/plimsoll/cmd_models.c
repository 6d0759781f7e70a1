/* cmd_models.c - `plimsoll models`: the built-in catalogue, counted by the reader of config.json.
 */
#include "tools/plimsoll/cli.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/model/catalogue.h"
#include "estimator/model/model.h"

#include <stdlib.h>
#include <string.h>

static json_t *ids_json(const struct pl_known_model *k) {
    json_t *list = json_array();
    char id[PL_KNOWN_ID];
    for (size_t i = 0; pl_catalogue_id(k, i, id); i++)
        pl_json_append(&list, json_string(id));
    return list;
}

static pl_err read_known(const struct pl_known_model *k, struct pl_model *m, struct pl_diag *d) {
    char *text;
    PL_TRY(pl_catalogue_config(k, &text, d));
    pl_err err = pl_model_parse(k->name, text, strlen(text), m, d);
    free(text);
    return err;
}

static json_t *model_json(const struct pl_known_model *k, const struct pl_model *m) {
    return json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name",
                     k->name, "ids", ids_json(k), "family", pl_family_name(m->family),
                     "param_count", (json_int_t)pl_model_param_count(m), "linear_param_count",
                     (json_int_t)pl_model_linear_params(m), "layers", (json_int_t)m->layers,
                     "hidden", (json_int_t)m->hidden, "heads", (json_int_t)m->heads, "kv_heads",
                     (json_int_t)m->kv_heads, "head_dim", (json_int_t)m->head_dim, "ffn",
                     (json_int_t)m->ffn, "vocab", (json_int_t)m->vocab, "tied", (int)m->tied);
}

static void print_model(const struct pl_known_model *k, const struct pl_model *m) {
    char params[PL_COUNT_TEXT];
    printf("%-30s %15s  %-12s %6u %6u %7u  %s\n", k->name,
           pl_count_text(pl_model_param_count(m), params), pl_family_name(m->family),
           (unsigned)m->layers, (unsigned)m->hidden, (unsigned)m->vocab, k->ids[0]);
}

int pl_cmd_models(const struct pl_cli *cli) {
    size_t n;
    const struct pl_known_model *known = pl_catalogue_table(&n);
    bool as_json = pl_cli_has(cli, PL_FLAG_JSON);
    json_t *list = as_json ? json_array() : NULL;
    struct pl_diag d = {0};
    pl_err err = PL_ERR_OK;
    if (!as_json)
        printf("%-30s %15s  %-12s %6s %6s %7s  %s\n", "name", "parameters", "family", "layers",
               "hidden", "vocab", "Hugging Face id");
    for (size_t i = 0; i < n && err == PL_ERR_OK; i++) {
        struct pl_model m;
        const struct pl_known_model *k = &known[i];
        if ((err = read_known(k, &m, &d)) != PL_ERR_OK) break;
        if (!as_json)
            print_model(k, &m);
        else if (json_array_append_new(list, model_json(k, &m)) != 0)
            err = pl_host_oom(&d, "the JSON answer");
    }
    if (err == PL_ERR_OK && as_json)
        err = pl_cli_print_json(json_pack("{s:O}", "models", list), &d);
    json_decref(list);
    return err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
