/* format_rows.h - what the readers of formats share. Internal to data/: formats.c drives, and
 * rows_tokens.c, rows_text.c and rows_chat.c read the rows.
 *
 * In: a parser at a row whose keys were found.  Out: its sample.  Needs: row_parser.h.
 *   B1  `complete` runs after the last key: at[k] is the value of key k, seen[k] whether it is
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
    unsigned kinds;        /* PL_KIND()s of its value */
    const char *expected;  /* the same in words */
    const char *also;      /* another name of the same, NULL = none */
    enum pl_column column; /* that may give it another name; PL_COLUMN_COUNT = none */
    bool (*read)(struct pl_row_parser *p, int k); /* NULL: `complete` reads it, from p->at */
};

struct pl_format {
    const char *name;
    uint32_t id; /* PL_FORMAT_* of a job */
    struct pl_format_key keys[PL_FORMAT_MAX_KEYS];
    bool needs_tokenizer, needs_chat, may_need_chat;
    unsigned meanings;                         /* what its other keys mean: bits of row_keys.h */
    bool (*complete)(struct pl_row_parser *p); /* after the last key */
};

bool pl_row_no_memory(struct pl_row_parser *p);
/* What an encoder said about the value of key k. */
bool pl_row_fail_with_problem(struct pl_row_parser *p, int k);
/* Sets the scanner back to the value of key k, which was passed over before. */
void pl_row_go_to(struct pl_row_parser *p, int k);
/* Appends the string of key k to p->text; nothing where the key is absent or null. */
bool pl_row_add_string(struct pl_row_parser *p, int k);

/* The keys of a format stand in its table in these orders. */
enum {
    PL_TOKENS_IDS,
    PL_TOKENS_LABELS,
    PL_TOKENS_ATTENTION,
    PL_TOKENS_ASSISTANT,
    PL_TOKENS_COMPLETION,
    PL_TOKENS_LOSS,
    PL_TOKENS_POSITIONS,
    PL_TOKENS_LENGTHS,
    PL_TOKENS_KEYS,
};
bool pl_tokens_read_ids(struct pl_row_parser *p, int k);
bool pl_tokens_read_labels(struct pl_row_parser *p, int k);
bool pl_tokens_complete(struct pl_row_parser *p);

enum { PL_ALPACA_INSTRUCTION, PL_ALPACA_OUTPUT, PL_ALPACA_INPUT, PL_ALPACA_SYSTEM };
enum { PL_PAIR_PROMPT, PL_PAIR_COMPLETION, PL_PAIR_SYSTEM };
enum { PL_PROMPTED_OUTPUT };
/* The key that column j of a prompt format is read as. */
#define PL_PROMPTED_KEY(j) (PL_FORMAT_MAX_KEYS + (int)(j))
bool pl_prompted_complete(struct pl_row_parser *p);
bool pl_text_complete(struct pl_row_parser *p);
bool pl_alpaca_complete(struct pl_row_parser *p);
bool pl_pair_complete(struct pl_row_parser *p); /* of strings; lists go to the one below */

enum { PL_CHAT_LIST, PL_CHAT_SYSTEM_TEXT };
bool pl_messages_complete(struct pl_row_parser *p);
bool pl_sharegpt_complete(struct pl_row_parser *p);
bool pl_pair_complete_messages(struct pl_row_parser *p);

#endif
