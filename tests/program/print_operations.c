/* print_operations.c - docs/operations.md, from the rows of operations and of optimizers. */
#include "estimator/base/text.h"
#include "estimator/program/cost.h"
#include "estimator/program/optimizer_rows.h"

#include <stdio.h>
#include <string.h>

static const char intro[] =
    "# Operations\n"
    "\n"
    "A step is a program of these operations (`plimsoll inspect --program` prints one). Shapes: N\n"
    "tokens of the micro-batch, T supervised tokens, B sequences, C hidden size, V vocabulary, F\n"
    "inner size of the MLP, H query heads and G heads of keys and values of size D, R rows of the\n"
    "KV cache, S positions of a rope table, M trainable tensors, E experts and k experts of a\n"
    "token, P = N*k routed rows, which are sorted by expert, CH channels of a convolution. O and "
    "K\n"
    "are the rows and columns of a matrix, n = O*K its elements. Numbers are of the types of the\n"
    "weights and activations where no type is written. `?`: may be absent. `!`: changed in place;\n"
    "the input is the output of its name. `ws`: scratch, absent where a back-end needs none.\n"
    "\n"
    "This page is made from `estimator/ops/op_rows.h` and "
    "`estimator/config/optimizers.h`:\n"
    "`build/tests/program/print_operations > docs/operations.md`.\n";

static void add_operands(struct pl_text *t, const char *title, const struct pl_operand_row *rows,
                         int n) {
    pl_text_addf(t, "- %s:", title);
    for (int i = 0; i < n; i++) {
        pl_text_add(t, " `");
        pl_operand_describe(&rows[i], t);
        pl_text_add(t, i < n - 1 ? "`," : "`");
    }
    pl_text_add(t, n ? "\n" : " none\n");
}

/* Adds lines of at most WIDTH letters. */
static void add_lines(struct pl_text *t, const char *words) {
    enum { WIDTH = 96 };
    while (strlen(words) > WIDTH) {
        int n = WIDTH;
        while (words[n] != ' ')
            n--;
        pl_text_addf(t, "%.*s\n", n, words);
        words += n + 1;
    }
    pl_text_addf(t, "%s\n", words);
}

static void add_gradient(struct pl_text *t, enum pl_op_kind of) {
    const char *before = "- gradient:";
    for (int kind = 0; kind < PL_OP_COUNT; kind++) {
        if (!pl_op_is_gradient(kind, of)) continue;
        pl_text_addf(t, "%s `%s`", before, pl_op_rows[kind].name);
        before = ",";
    }
    if (pl_op_gradient(of) != PL_OP_COUNT) pl_text_add(t, "\n");
}

static void add_op(struct pl_text *t, enum pl_op_kind kind) {
    const struct pl_op_row *row = &pl_op_rows[kind];
    pl_text_addf(t, "\n## %s\n\n```\n", row->name);
    add_lines(t, row->what);
    pl_text_add(t, "```\n\n");
    add_operands(t, "in", row->in, row->n_in);
    add_operands(t, "out", row->out, row->n_out);
    add_gradient(t, kind);
    pl_text_addf(t, "- class of cost: %s\n", pl_cost_name(row->cost));
    if (row->runs == PL_RUNS_TOGETHER) pl_text_add(t, "- neighbours run as one on a GPU\n");
}

static const char of_optimizers[] = "\n# Optimizers\n"
                                    "\n"
                                    "What a job keeps for each parameter that it trains, under the "
                                    "name of the tensor and a dot in\n"
                                    "`optimizer.safetensors`. Next to bf16 weights with "
                                    "`master_weights` there is `.master`, too, of\n"
                                    "4 bytes a parameter.\n"
                                    "\n"
                                    "| optimizer | operation | states | bytes a parameter |\n"
                                    "|---|---|---|---|\n";

static void add_optimizer(struct pl_text *t, const struct pl_optimizer *row) {
    double bytes = 0;
    pl_text_addf(t, "| `%s` | %s |", row->name, pl_op_rows[row->op].name);
    for (const struct pl_state *s = row->states; s->name; s++) {
        const struct pl_state_form *form = s->form;
        bytes += (double)pl_dtype_bytes(form->dtype) + (form->block ? 4.0 / form->block : 0);
        pl_text_addf(t, "%s `.%s` %s", s == row->states ? "" : ",", s->name,
                     pl_dtype_name(form->dtype));
        if (form->block) pl_text_addf(t, " with `.%s`, one for %u", s->scales, form->block);
    }
    pl_text_addf(t, " | %.4g |\n", bytes);
}

static void add_optimizers(struct pl_text *t) {
    uint32_t n;
    const struct pl_optimizer *rows = pl_optimizer_table(&n);
    pl_text_add(t, of_optimizers);
    for (uint32_t i = 0; i < n; i++)
        add_optimizer(t, &rows[i]);
}

int main(void) {
    struct pl_text t = {0};
    pl_text_add(&t, intro);
    for (int kind = 0; kind < PL_OP_COUNT; kind++)
        add_op(&t, kind);
    add_optimizers(&t);
    bool whole = !t.failed && fputs(pl_text_str(&t), stdout) >= 0 && fflush(stdout) == 0;
    pl_text_finish(&t);
    return whole ? 0 : 1;
}
