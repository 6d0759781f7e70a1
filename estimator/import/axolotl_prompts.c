/* axolotl_prompts.c - the types of axolotl's data sets that make a text of an instruction: those of
 * src/axolotl/prompters.py and prompt_strategies (alpaca_instruct.py, alpaca_chat.py,
 * user_defined.py) of 2026-07. */
#include "estimator/import/dialect.h"

#include "estimator/config/scalar.h"

#include <string.h>

/* The texts around a system text, and around an instruction with and without input. */
struct style {
    const char *system, *with_input, *without;
};

static const struct style instruct = {
    "{system}\n\n",
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n",
};
static const struct style chat = {
    "SYSTEM: {system}\n",
    "USER: {instruction}\n{input}\nASSISTANT:",
    "USER: {instruction}\nASSISTANT:",
};
static const struct style chatml = {
    "<|im_start|>system\n{system}<|im_end|>\n",
    "<|im_start|>user\n{instruction}\n{input}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n",
};
static const struct style phi = {
    "<|system|>\n{system}<|end|>\n",
    "<|user|>\n{instruction}<|end|>{input}<|assistant|>",
    "<|user|>\n{instruction}<|end|>\n<|assistant|>\n",
};

/* The system texts of rows with and without input. */
struct rules {
    const char *with_input, *without;
};

#define TASK   "Below is an instruction that describes a task"
#define PAIRED ", paired with an input that provides further context"
#define WRITE  ". Write a response that appropriately completes the request."
static const struct rules alpaca = {TASK PAIRED WRITE, TASK WRITE};
#define FROM_USER "Below is an instruction from a USER that describes a task"
static const struct rules concise = {
    FROM_USER PAIRED ". The ASSISTANT writes a response that concisely and appropriately "
                     "completes the request.\n\n",
    FROM_USER ". The ASSISTANT writes a response that appropriately and concisely completes the "
              "request.\n\n",
};
static const struct rules none = {"", ""};

static const struct type {
    const char *name;
    const struct style *style;
    const struct rules *rules;
    const char *instruction, *output; /* columns of rows that have no input; NULL: the usual ones */
} types[] = {
    {"alpaca", &instruct, &alpaca, NULL, NULL},
    {"alpaca:instruct", &instruct, &alpaca, NULL, NULL},
    {"alpaca:chat", &chat, &alpaca, NULL, NULL},
    {"alpaca:chatml", &chatml, &alpaca, NULL, NULL},
    {"alpaca:phi", &phi, &alpaca, NULL, NULL},
    {"alpaca_instruct.load", &instruct, &alpaca, NULL, NULL},
    {"alpaca_instruct.load_no_prompt", &instruct, &none, NULL, NULL},
    {"alpaca_chat.load", &chat, &alpaca, NULL, NULL},
    {"alpaca_chat.load_concise", &chat, &concise, NULL, NULL},
    {"alpaca_chat.load_no_prompt", &chat, &none, NULL, NULL},
    {"alpaca_chat.load_qa", &chat, &concise, "question", "answer"},
    {"alpaca_chat.load_camel_ai", &chat, &concise, "message_1", "message_2"},
};

/* A word in braces, and the column or the text that takes its place. */
struct brace {
    const char *word, *column, *text;
};

/* Appends a text of the entry; braces of `text` are doubled. */
static void add_plain(struct pl_text *out, const char *text) {
    for (; *text; text++)
        pl_text_addf(out, *text == '{' || *text == '}' ? "%c%c" : "%c", *text, *text);
}

static void add_format(struct pl_text *out, const char *format, const struct brace *braces) {
    while (*format) {
        const struct brace *b = braces;
        while (b->word && strncmp(format, b->word, strlen(b->word)) != 0)
            b++;
        if (b->column)
            pl_text_addf(out, "{%s}", b->column);
        else if (b->text)
            add_plain(out, b->text);
        else
            pl_text_addn(out, format, 1);
        format += b->word ? strlen(b->word) : 1;
    }
}

/* Adds one text to the entry: a system text where there is one, and the turn after it. */
static void add_prompt(struct pl_import *im, const char *key, const char *system_format,
                       const char *system, const char *turn, const struct brace *columns) {
    const struct brace rule[] = {{"{system}", NULL, system}, {NULL, NULL, NULL}};
    struct pl_text out = {0};
    if (*system) add_format(&out, system_format, rule);
    add_format(&out, turn, columns);
    im->data.failed |= out.failed;
    pl_data_word(im, key, pl_text_str(&out));
    pl_text_finish(&out);
}

static void write_type(struct pl_import *im, const struct type *type) {
    const char *instruction = type->instruction ? type->instruction : "instruction";
    const struct brace columns[] = {
        {"{instruction}", instruction, NULL}, {"{input}", "input", NULL}, {NULL, NULL, NULL}};
    const struct style *style = type->style;
    const struct rules *rules = type->rules;
    const char *bare = type->instruction ? "prompt_format" : "no_input_format";
    if (!type->instruction)
        add_prompt(im, "prompt_format", style->system, rules->with_input, style->with_input,
                   columns);
    add_prompt(im, bare, style->system, rules->without, style->without, columns);
    if (type->output) pl_data_word(im, "field_output", type->output);
}

/* The value of a key of the mapping, or its default there. */
static const char *value_of(const struct pl_import *im, const struct pl_node *type, const char *key,
                            const char *preset) {
    const struct pl_node *value = pl_import_in(im, type, key);
    return value ? pl_node_text(value) : preset;
}

static void write_mapping(struct pl_import *im, const struct pl_node *type,
                          const struct pl_taken *t) {
    const char *system = value_of(im, type, "system_prompt", "");
    const char *around = value_of(im, type, "system_format", "{system}");
    const struct brace columns[] = {
        {"{instruction}", value_of(im, type, "field_instruction", "instruction"), NULL},
        {"{input}", value_of(im, type, "field_input", "input"), NULL},
        {NULL, NULL, NULL}};
    const char *turn = value_of(im, type, "format", "{instruction} {input} ");
    const char *bare = value_of(im, type, "no_input_format", "{instruction} ");
    const struct pl_node *output = pl_import_in(im, type, "field_output");
    const bool reads_input = strstr(turn, "{input}") != NULL;
    const struct pl_node *field = pl_import_in(im, type, "field_system");
    add_prompt(im, "prompt_format", around, system, turn, columns);
    if (reads_input && strcmp(turn, bare) != 0)
        add_prompt(im, "no_input_format", around, system, bare, columns);
    else if (strcmp(turn, bare) != 0)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "rows without an input have another text there (no_input_format), "
                             "which here are those without a column of `format`");
    if (output) pl_data_word(im, "field_output", pl_node_text(output));
    if (field)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "a system text of the column `%.60s` before each row: write it into "
                             "the column that prompt_format reads",
                             pl_node_text(field));
}

bool pl_axolotl_prompt(struct pl_import *im, const struct pl_node *type, const struct pl_taken *t) {
    if (type->kind == PL_NODE_MAPPING) {
        write_mapping(im, type, t);
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, pl_node_text(type)) == 0) {
            write_type(im, &types[i]);
            return true;
        }
    return false;
}
