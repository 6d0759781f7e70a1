/* rule_tables.c - the list of tables; a table as text and as JSON. */
#include "estimator/rule_of_thumb/rule_tables.h"

#include "estimator/base/json_tree.h"
#include "estimator/rule_of_thumb/rule_build.h"

#include <string.h>

static const struct pl_rule_table_info list[] = {
    {"precision", "Weights by precision", "", false, false, pl_rule_fill_precision},
    {"gradients", "Gradients, 16 bit, of every trained parameter", "", false, false,
     pl_rule_fill_gradients},
    {"optimizer", "States of AdamW, fp32", "", false, false, pl_rule_fill_optimizer},
    {"lora", "LoRA: 2 x rank x hidden_dim x target modules x layers",
     "every module is taken for square; with a MODEL each has its own shape", false, false,
     pl_rule_fill_lora},
    {"activations", "Activations: 2 x layers x batch x length x hidden_dim x 2 bytes", "", false,
     false, pl_rule_fill_activations},
    {"inference", "Weights alone, to load a model", "", false, false, pl_rule_fill_inference},
    {"qlora", "QLoRA, batch x length", "document_gb was published for checkpointing on", true,
     false, pl_rule_fill_qlora},
    {"gpus", "GPUs and what they train", "fits, tight and no: QLoRA at 1 x 2048 by the formula",
     true, false, pl_rule_fill_gpus},
    {"grid", "Batch x length on one card",
     "document_... was published for 8B QLoRA on 15 GB; it matches best without checkpointing",
     true, true, pl_rule_fill_grid},
    {"accumulation", "Micro-batches for an effective batch",
     "memory follows the micro-batch, the update follows the effective batch", true, true,
     pl_rule_fill_accumulation},
    {"freezing", "Training only the last layers",
     "frozen or not, every weight has to be loaded: only fewer bytes a weight help", false, true,
     pl_rule_fill_freezing},
    {"mistakes", "Common mistakes and their remedies", "", false, false, pl_rule_fill_mistakes},
    {"checklist", "After CUDA out of memory", "`estimate-vram MODEL --checklist` answers it", false,
     false, pl_rule_fill_checklist},
    {"tiers", "Batch size by the size of the card", "with a MODEL the batch size is planned", false,
     false, pl_rule_fill_tiers},
    {"samples", "Published sample estimates, and the command that answers each",
     "the published figures are not ours", false, false, pl_rule_fill_samples},
};

const struct pl_rule_table_info *pl_rule_table_list(size_t *n) {
    *n = sizeof list / sizeof *list;
    return list;
}

const struct pl_rule_table_info *pl_rule_table_find(const char *name) {
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

void pl_rule_table_fill(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in,
                        struct pl_rule_table *t) {
    memset(t, 0, sizeof *t);
    t->info = info;
    info->fill(in, t);
}

/* --- showing --------------------------------------------------------------------------------- */

static int column_width(const struct pl_rule_table *t, uint32_t column) {
    size_t width = strlen(t->columns[column]);
    for (uint32_t r = 0; r < t->n_rows; r++) {
        size_t n = strlen(t->cells[r][column].text);
        if (n > width) width = n;
    }
    return (int)width;
}

/* Numbers stand right, and so does the head of their column; the last column is not padded. */
static void add_cell(const struct pl_rule_table *t, uint32_t column, const char *text,
                     struct pl_text *out) {
    int width = column_width(t, column);
    bool right = t->n_rows && t->cells[0][column].is_number;
    bool last = column + 1 == t->n_columns;
    pl_text_addf(out, "  %*s", right ? width : last ? 0 : -width, text);
}

void pl_rule_table_text(const struct pl_rule_table *t, struct pl_text *out) {
    pl_text_addf(out, "%s (approximate)\n", t->info->title);
    for (uint32_t c = 0; c < t->n_columns; c++)
        add_cell(t, c, t->columns[c], out);
    pl_text_add(out, "\n");
    for (uint32_t r = 0; r < t->n_rows; r++) {
        for (uint32_t c = 0; c < t->n_columns; c++)
            add_cell(t, c, t->cells[r][c].text, out);
        pl_text_add(out, "\n");
    }
    if (t->info->note[0]) pl_text_addf(out, "  %s\n", t->info->note);
}

static json_t *row_json(const struct pl_rule_table *t, uint32_t r) {
    json_t *row = json_object();
    for (uint32_t c = 0; c < t->n_columns; c++) {
        const struct pl_rule_cell *cell = &t->cells[r][c];
        json_t *value = cell->is_number ? json_real(cell->number) : json_string(cell->text);
        pl_json_set(&row, t->columns[c], value);
    }
    return row;
}

json_t *pl_rule_table_json(const struct pl_rule_table *t) {
    json_t *columns = json_array(), *rows = json_array();
    for (uint32_t c = 0; c < t->n_columns; c++)
        pl_json_append(&columns, json_string(t->columns[c]));
    for (uint32_t r = 0; r < t->n_rows; r++)
        pl_json_append(&rows, row_json(t, r));
    json_t *notes = json_array();
    if (t->info->note[0]) pl_json_append(&notes, json_string(t->info->note));
    return json_pack("{s:s, s:s, s:o, s:o, s:b, s:o}", "table", t->info->name, "title",
                     t->info->title, "columns", columns, "rows", rows, "approximate", 1, "notes",
                     notes);
}
