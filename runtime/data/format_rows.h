/* format_rows.h - state and helpers of the readers of formats. Internal to data/: formats.c drives,
 * and rows_*.c read the rows.
 *
 * In: a parser at a row whose keys were found.  Out: its sample.  Needs: row_parser.h.
 *   B1  `complete` runs after the last key: at[k] is the value of key k, seen[k] is true if it is
 *       there
 *   B2  a function that returns false has recorded a problem in p->scan */
#ifndef PL_RUNTIME_DATA_FORMAT_ROWS_H
#define PL_RUNTIME_DATA_FORMAT_ROWS_H

#include "runtime/data/row_parser.h"

enum pl_key_use { PL_KEY_OPTIONAL, PL_KEY_REQUIRED };
#define PL_KIND(name) (1u << PL_SCAN_##name)

struct pl_format_key {
    const char *name; /* NULL ends the list */
    enum pl_key_use use;
    unsigned kinds;        /* PL_KIND()s that its value may have */
    const char *expected;  /* these kinds in words */
    const char *also;      /* another name of the key, NULL = none */
    enum pl_column column; /* column that may rename it; PL_COLUMN_COUNT = none */
    bool (*read)(struct pl_row_parser *p, int k); /* NULL: `complete` reads the value, from p->at */
};

struct pl_format {
    const char *name;
    uint32_t id; /* PL_FORMAT_* of a job */
    struct pl_format_key keys[PL_FORMAT_MAX_KEYS];
    bool needs_tokenizer, needs_chat, may_need_chat;
    unsigned stages;   /* 1u << PL_STAGE_* whose rows it reads; 0: those of PL_STAGE_SFT */
    unsigned meanings; /* PL_FORMAT_* as in a job */
    bool (*complete)(struct pl_row_parser *p); /* meaning of its other keys: bits of row_keys.h */
};

bool pl_row_no_memory(struct pl_row_parser *p);
/* Fails with the encoder's problem with the value of key k. */
bool pl_row_fail_with_problem(struct pl_row_parser *p, int k);
/* Sets the scanner back to the value of key k, which was passed over before. */
void pl_row_go_to(struct pl_row_parser *p, int k);
/* Appends the string of key k to p->text; nothing if the key is absent or null. */
bool pl_row_add_string(struct pl_row_parser *p, int k);

/* Reads the weight of the row into p->out. */
bool pl_row_read_weight(struct pl_row_parser *p, int k);

/* The order of the keys in the table of a format. */
enum {
    PL_TOKENS_IDS,
    PL_TOKENS_LABELS,
    PL_TOKENS_ATTENTION,
    PL_TOKENS_ASSISTANT,
    PL_TOKENS_COMPLETION,
    PL_TOKENS_LOSS,
    PL_TOKENS_POSITIONS,
    PL_TOKENS_LENGTHS,
    PL_TOKENS_WEIGHT,
};
bool pl_tokens_read_ids(struct pl_row_parser *p, int k);
bool pl_tokens_read_labels(struct pl_row_parser *p, int k);
bool pl_tokens_complete(struct pl_row_parser *p);

enum { PL_ALPACA_INSTRUCTION, PL_ALPACA_OUTPUT, PL_ALPACA_INPUT, PL_ALPACA_SYSTEM };
enum { PL_PAIR_PROMPT, PL_PAIR_COMPLETION, PL_PAIR_SYSTEM };
enum { PL_PROMPTED_OUTPUT, PL_ASKED_SYSTEM };
/* The key as which column j of a prompt format is read. */
#define PL_PROMPTED_KEY(j) (PL_FORMAT_MAX_KEYS + (int)(j))
bool pl_prompted_complete(struct pl_row_parser *p);
bool pl_asked_complete(struct pl_row_parser *p);
/* Appends the prompt that a text of the entry makes of the row to p->text. */
bool pl_row_add_prompt(struct pl_row_parser *p);
bool pl_text_complete(struct pl_row_parser *p);
bool pl_alpaca_complete(struct pl_row_parser *p);
bool pl_pair_complete(struct pl_row_parser *p); /* for strings; lists use the next one */

/* The keys of a pair; a row with one answer has it and its label in place of the other two. */
enum {
    PL_PREFERENCE_PROMPT,
    PL_PREFERENCE_CHOSEN,
    PL_PREFERENCE_REJECTED,
    PL_PREFERENCE_TURNS, /* of rows that say the prompt in turns, with the keys after it */
    PL_PREFERENCE_INSTRUCTION,
    PL_PREFERENCE_INPUT,
    PL_PREFERENCE_SYSTEM,
};
enum { PL_PREFERENCE_COMPLETION = PL_PREFERENCE_CHOSEN, PL_PREFERENCE_LABEL };
bool pl_preference_read_ids(struct pl_row_parser *p, int k);
bool pl_preference_complete_tokens(struct pl_row_parser *p);
bool pl_preference_complete(struct pl_row_parser *p);

enum { PL_CHAT_LIST, PL_CHAT_SYSTEM_TEXT };
bool pl_messages_complete(struct pl_row_parser *p);
bool pl_sharegpt_complete(struct pl_row_parser *p);
bool pl_pair_complete_messages(struct pl_row_parser *p);

#endif
