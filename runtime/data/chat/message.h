/* message.h - what a template is handed: messages, the day, and where a message went in the text.
 *
 * Needs: nothing. */
#ifndef PL_RUNTIME_DATA_CHAT_MESSAGE_H
#define PL_RUNTIME_DATA_CHAT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

enum pl_chat_role { PL_CHAT_SYSTEM, PL_CHAT_USER, PL_CHAT_ASSISTANT, PL_CHAT_ROLES };
const char *pl_chat_role_name(enum pl_chat_role role); /* "assistant" */

struct pl_chat_message {
    enum pl_chat_role role;
    const char *content; /* [n] bytes of UTF-8, borrowed */
    size_t n;
};

struct pl_chat_date {
    int year, month, day; /* month 1 to 12; year 0 = none given */
};
/* "2025-01-02". False for anything else, days that no calendar has included. */
bool pl_chat_date_parse(const char *text, struct pl_chat_date *out);
struct pl_chat_date pl_chat_today(void); /* local time */

struct pl_chat_options {
    const char *bos, *eos;    /* as the tokenizer spells them; NULL: the template's own model's */
    struct pl_chat_date date; /* of the templates that show one; none: pl_chat_today() */
    bool generate;            /* end with the header of an answer */
};

struct pl_chat_span {
    size_t begin, end; /* bytes of the rendered text */
    bool lost;         /* the template leaves this message out */
};

#endif
