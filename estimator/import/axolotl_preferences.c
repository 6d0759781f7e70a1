/* axolotl_preferences.c - the types of axolotl's data sets of preferences, which are functions of
 * src/axolotl/prompt_strategies/dpo, kto and orpo of 2026-07: they make text of rows there, and
 * rows of text or of messages are read here. */
#include "estimator/import/dialect.h"

#include <string.h>

#define CONVERT " as turns of %s: here strings have no template: make lists of messages of them"
#define CLIPPED                                                                                    \
    "an answer ends at the mark of its template there, and here as the template ends: compare "    \
    "`plimsoll tokenize job.yaml --show 3`"

/* The function that the part of a type after its dot names. */
static const struct strategy {
    const char *name;
    const char *prompt; /* the column with the prompt, which is a string; NULL: there is none */
    bool whole;         /* chosen and rejected are whole conversations */
} strategies[] = {
    {"argilla_chat", NULL, true},      {"intel", "question", false},
    {"icr", "input", false},           {"ultra", "prompt", false},
    {"prompt_pairs", "prompt", false}, {"argilla", "instruction", false},
};

/* A type that a mapping describes: names of columns, and texts around them. */
static void read_described(struct pl_import *im, const struct pl_node *type,
                           const struct pl_taken *t) {
    static const struct {
        const char *key, *same;
    } formats[] = {{"prompt_format", "{prompt}"},
                   {"chosen_format", "{chosen}"},
                   {"rejected_format", "{rejected}"},
                   {"completion_format", "{completion}"}};
    static const char *const fields[] = {"field_prompt", "field_chosen", "field_rejected",
                                         "field_completion", "field_label"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct pl_node *name = pl_import_in(im, type, fields[i]);
        if (name) pl_data_word(im, fields[i], pl_node_text(name));
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct pl_node *text = pl_import_in(im, type, formats[i].key);
        if (text && *pl_node_text(text) && strcmp(pl_node_text(text), formats[i].same) != 0)
            pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                                 "%s: text around a column: write it into the rows",
                                 formats[i].key);
    }
}

/* `chat_template.default`: messages, and one answer of each kind after them. */
static void read_turns(struct pl_import *im, const struct pl_node *entry,
                       const struct pl_taken *t) {
    const struct pl_node *messages = pl_import_in(im, entry, "field_messages");
    pl_data_word(im, "field_prompt", messages ? pl_node_text(messages) : "messages");
    pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                         "`chosen` and `rejected` are one message each there, or their last one "
                         "counts: make lists of one message of them");
}

/* The template of Llama 3 puts nothing after the mark that ends an answer. */
static bool ends_with_its_mark(const struct pl_import *im) {
    struct pl_taken t;
    return pl_import_peek(im, "chat_template", &t) && strcmp(pl_node_text(t.value), "llama3") == 0;
}

/* True for the types whose `chosen` and `rejected` are whole conversations, which are read here as
 * they are. */
static bool is_whole(const struct pl_import *im, const char *type, const struct strategy *s) {
    static const char *const types[] = {"chat_template.argilla", "chat_template.argilla_chat"};
    if (im->job.stage == PL_STAGE_KTO) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0) return true;
    return (s && s->whole) ||
           (im->job.stage == PL_STAGE_ORPO && strcmp(type, "chat_template") == 0);
}

/* Returns the function of a type that writes the turns of one template; NULL: it does not. */
static const struct strategy *find_strategy(const char *type) {
    const char *dot = strchr(type, '.');
    if (!dot || (strncmp(type, "llama3.", 7) != 0 && strncmp(type, "chatml.", 7) != 0)) return NULL;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (strcmp(strategies[i].name, dot + 1) == 0) return &strategies[i];
    return NULL;
}

static void read_strategy(struct pl_import *im, const struct pl_taken *t, const char *type) {
    const struct strategy *s = find_strategy(type);
    const bool llama = strncmp(type, "llama3.", 7) == 0;
    const char *turns = llama ? "llama3" : "chatml";
    if (is_whole(im, type, s)) {
        if (s) pl_import_set(im, PL_KEY_chat_template, turns, t, NULL);
        if (im->job.stage != PL_STAGE_ORPO && !llama && !ends_with_its_mark(im))
            pl_import_note_entry(im, PL_IMPORT_MISSED, t, CLIPPED);
    } else if (s) {
        if (s->prompt) pl_data_word(im, "field_prompt", s->prompt);
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, "prompts and answers" CONVERT, turns);
    } else {
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "rows of the type %.60s: make rows of docs/preference.md of them",
                             type);
    }
}

void pl_axolotl_preferences(struct pl_import *im, const struct pl_node *entry,
                            const struct pl_taken *t) {
    static const char *const fields[] = {"field_chosen", "field_rejected"};
    const struct pl_node *type = pl_import_in(im, entry, "type");
    const char *name = type ? pl_node_text(type) : "";
    const bool described = type && type->kind == PL_NODE_MAPPING;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct pl_node *column = pl_import_in(im, entry, fields[i]);
        if (column) pl_data_word(im, fields[i], pl_node_text(column));
    }
    if (described)
        read_described(im, type, t);
    else if (strcmp(name, "chat_template.default") == 0 && im->job.stage != PL_STAGE_KTO)
        read_turns(im, entry, t);
    else if (*name && strncmp(name, "passthrough", 11) != 0)
        read_strategy(im, t, name);
}
