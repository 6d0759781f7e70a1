/* rows_text.c - rows that are texts: one, or a prompt and what follows it. */
#include "runtime/data/format_rows.h"
#include "runtime/data/prompt_form.h"

#include <string.h>

static bool encode(struct pl_row_parser *p, int k, size_t prompt_bytes) {
    if (p->text.failed) return pl_row_no_memory(p);
    return pl_encode_text(&p->encoder, pl_text_str(&p->text), p->text.len, prompt_bytes, p->out,
                          &p->problem) == PL_ERR_OK ||
           pl_row_fail_with_problem(p, k);
}

bool pl_text_complete(struct pl_row_parser *p) {
    return pl_row_add_string(p, 0) && encode(p, 0, 0);
}

/* The prompt of stanford_alpaca (tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT). */
static const char plain[] = "Below is an instruction that describes a task. Write a response that "
                            "appropriately completes the request.";
static const char before_instruction[] = "\n\n### Instruction:\n";
static const char before_response[] = "\n\n### Response:";

void pl_prompt_add_alpaca(struct pl_text *out, const char *instruction, size_t n) {
    pl_text_add(out, plain);
    pl_text_add(out, before_instruction);
    pl_text_addn(out, instruction, n);
    pl_text_add(out, before_response);
}

/* A system text, which rows of stanford_alpaca do not have, takes the place of the first paragraph.
 */
static bool add_alpaca_prompt(struct pl_row_parser *p) {
    static const char with_input[] =
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.";
    p->text.len = 0;
    if (!pl_row_add_string(p, PL_ALPACA_INPUT)) return false;
    bool input = p->text.len > 0;
    p->text.len = 0;
    if (!pl_row_add_string(p, PL_ALPACA_SYSTEM)) return false;
    if (!p->text.len) pl_text_add(&p->text, input ? with_input : plain);
    pl_text_add(&p->text, before_instruction);
    if (!pl_row_add_string(p, PL_ALPACA_INSTRUCTION)) return false;
    if (input) pl_text_add(&p->text, "\n\n### Input:\n");
    if (!pl_row_add_string(p, PL_ALPACA_INPUT)) return false;
    pl_text_add(&p->text, before_response);
    return true;
}

bool pl_alpaca_complete(struct pl_row_parser *p) {
    if (!add_alpaca_prompt(p)) return false;
    size_t prompt_bytes = p->text.len;
    return pl_row_add_string(p, PL_ALPACA_OUTPUT) && encode(p, PL_ALPACA_OUTPUT, prompt_bytes);
}

/* A prompt that is a string has no turns, and so none for a system text. */
static bool check_no_system(struct pl_row_parser *p) {
    if (!pl_row_add_string(p, PL_PAIR_SYSTEM)) return false;
    bool empty = p->text.len == 0;
    p->text.len = 0;
    return empty || pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PL_PAIR_SYSTEM],
                                 "write it into the prompt, or the prompt as a list of messages",
                                 "`system` has no place in a prompt that is a string");
}

bool pl_pair_complete(struct pl_row_parser *p) {
    static const char *const kinds[] = {"a string", "a list of messages"};
    bool list[2];
    for (int k = PL_PAIR_PROMPT; k <= PL_PAIR_COMPLETION; k++) {
        pl_row_go_to(p, k);
        list[k] = pl_scan_peek(&p->scan) == PL_SCAN_ARRAY;
    }
    if (list[0] != list[1])
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PL_PAIR_COMPLETION], NULL,
                            "`prompt` is %s but `completion` %s", kinds[list[0]], kinds[list[1]]);
    if (list[0]) return pl_pair_complete_messages(p);
    if (!check_no_system(p) || !pl_row_add_string(p, PL_PAIR_PROMPT)) return false;
    size_t prompt_bytes = p->text.len;
    return pl_row_add_string(p, PL_PAIR_COMPLETION) && encode(p, PL_PAIR_PROMPT, prompt_bytes);
}

bool pl_prompted_complete(struct pl_row_parser *p) {
    if (!pl_row_add_prompt(p)) return false;
    size_t prompt_bytes = p->text.len;
    return pl_row_add_string(p, PL_PROMPTED_OUTPUT) && encode(p, PL_PROMPTED_OUTPUT, prompt_bytes);
}
