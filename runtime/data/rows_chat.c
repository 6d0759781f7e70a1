/* rows_chat.c - rows that are conversations. */
#include "runtime/data/format_rows.h"

static bool encode_messages(struct pl_row_parser *p, int k, size_t n_prompt) {
    return pl_encode_conversation(&p->encoder, &p->conversation, n_prompt, p->out, &p->problem) ==
               PL_ERR_OK ||
           pl_row_fail_with_problem(p, k);
}

/* The text of key k as the first message; an empty one says nothing. */
static bool read_system(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return true;
    pl_row_go_to(p, k);
    if (pl_scan_peek(&p->scan) == PL_SCAN_STRING &&
        !pl_conversation_read_text(&p->conversation, &p->scan, PL_CHAT_SYSTEM))
        return false;
    if (p->conversation.text.len == 0) p->conversation.n = 0;
    return true;
}

/* Reads the list of key k after the system text of key `system`. */
static bool read_list(struct pl_row_parser *p, int k, int system, enum pl_spelling spelling) {
    if (!read_system(p, system)) return false;
    bool has_system = p->conversation.n > 0;
    pl_row_go_to(p, k);
    if (!pl_conversation_read(&p->conversation, &p->scan, spelling)) return false;
    if (!has_system || pl_conversation_join_system(&p->conversation)) return true;
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[system], "keep one of them",
                        "the row has a `system` and a system message that differs");
}

bool pl_messages_complete(struct pl_row_parser *p) {
    return read_list(p, PL_CHAT_LIST, PL_CHAT_SYSTEM_TEXT, PL_SPELLING_OPENAI) &&
           encode_messages(p, PL_CHAT_LIST, 0);
}

bool pl_sharegpt_complete(struct pl_row_parser *p) {
    return read_list(p, PL_CHAT_LIST, PL_CHAT_SYSTEM_TEXT, PL_SPELLING_SHAREGPT) &&
           encode_messages(p, PL_CHAT_LIST, 0);
}

bool pl_asked_complete(struct pl_row_parser *p) {
    struct pl_conversation *c = &p->conversation;
    if (!read_system(p, PL_ASKED_SYSTEM) || !pl_row_add_prompt(p) ||
        !pl_conversation_add(c, &p->scan, PL_CHAT_USER, &p->text))
        return false;
    pl_row_go_to(p, PL_PROMPTED_OUTPUT);
    return pl_conversation_read_text(c, &p->scan, PL_CHAT_ASSISTANT) &&
           encode_messages(p, PL_PROMPTED_OUTPUT, 0);
}

bool pl_pair_complete_messages(struct pl_row_parser *p) {
    if (p->no_chat.err != PL_ERR_OK) {
        p->problem = p->no_chat;
        return pl_row_fail_with_problem(p, PL_PAIR_PROMPT);
    }
    if (!read_list(p, PL_PAIR_PROMPT, PL_PAIR_SYSTEM, PL_SPELLING_OPENAI)) return false;
    size_t n_prompt = p->conversation.n;
    pl_row_go_to(p, PL_PAIR_COMPLETION);
    return pl_conversation_read(&p->conversation, &p->scan, PL_SPELLING_OPENAI) &&
           encode_messages(p, PL_PAIR_PROMPT, n_prompt);
}
