/* message.h - input and output of templates: messages, the day, and the span of a message in the
 * text.
 *
 * Needs: nothing. */
#ifndef PL_RUNTIME_DATA_CHAT_MESSAGE_H
#define PL_RUNTIME_DATA_CHAT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

enum pl_chat_role { PL_CHAT_SYSTEM, PL_CHAT_USER, PL_CHAT_ASSISTANT, PL_CHAT_ROLES };
const char *pl_chat_role_name(enum pl_chat_role role); /* e.g. "assistant" */

struct pl_chat_message {
    enum pl_chat_role role;
    const char *content; /* [n] bytes of UTF-8, borrowed */
    size_t n;
};

struct pl_chat_date {
    int year, month, day; /* month 1 to 12; year 0 = none given */
};
/* Parses "2025-01-02". False for anything else, and for days that no calendar has. */
bool pl_chat_date_parse(const char *text, struct pl_chat_date *out);
struct pl_chat_date pl_chat_today(void); /* in local time */

#define PL_DAY_TEXT 16 /* a day as text, such as 2025-01-31 */

struct pl_chat_options {
    const char *bos, *eos;    /* the tokenizer's marks; NULL: those of the template's own
                                 model */
    struct pl_chat_date date; /* for templates that show one; none: pl_chat_today() */
    bool generate;            /* ends with the header of an answer */
};

struct pl_chat_span {
    size_t begin, end; /* bytes of the rendered text */
    bool lost;         /* the template leaves this message out */
};

#endif
