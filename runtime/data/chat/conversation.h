/* conversation.h - a list of messages as JSON, read into what a template renders.
 *
 * In: a scanner at a value.  Out: messages in order, and what they say about their own training.
 * Needs: json_scan, chat.
 *   V1  a key is read, refused by name, inert or told (row_keys.h): tool calls, images and
 *       reasoning kept in a field of its own are refused, never dropped
 *   V2  both spellings are known: role and content (OpenAI), from and value (ShareGPT); content is
 *       a string or a list of text parts, which are joined with nothing between. A turn of `input`
 *       and `output` is a question and its answer
 *   V3  `whole`: a program renders the messages and sees all of their keys. Then any role is
 *       accepted, tool calls and reasoning are passed on, and only content that is no text is
 *       refused
 * Use: pl_conversation_start(&c);
 *      if (pl_conversation_read(&c, &scan, PL_SPELLING_OPENAI))
 *          pl_chat_render(t, &o, pl_conversation_messages(&c), c.n, &out, &d); ...
 *      pl_conversation_finish(&c); */
#ifndef PL_RUNTIME_DATA_CHAT_CONVERSATION_H
#define PL_RUNTIME_DATA_CHAT_CONVERSATION_H

#include "runtime/data/chat/chat.h"
#include "estimator/base/json_scan.h"

struct pl_columns;   /* job.h */
struct pl_told_keys; /* row_keys.h */

/* How the keys are called in what is said about them; both are read. */
enum pl_spelling { PL_SPELLING_OPENAI, PL_SPELLING_SHAREGPT };

/* `weight`, `train` or any other key of its meaning of a message. */
enum pl_message_train { PL_MESSAGE_BY_ROLE, PL_MESSAGE_MASKED, PL_MESSAGE_TRAINED };

/* Where a value stands in the row; end 0: it is not there. */
struct pl_json_span {
    size_t begin, end;
};

struct pl_conversation {
    bool whole;      /* set by the caller, and kept by pl_conversation_start */
    const char *row; /* what the spans lie in, borrowed */
    struct pl_json_span tools, documents, more; /* of the row; more: chat_template_kwargs */
    struct pl_json_span *json; /* [n], owned: each message; end 0 = role and content are all */
    struct pl_chat_message *messages; /* [n], owned; content is set by pl_conversation_messages */
    enum pl_message_train *train;     /* [n], owned */
    size_t *begins;                   /* [n], owned: of the contents in `text` */
    size_t n, cap;
    struct pl_text text, key;         /* contents one after the other; scratch */
    struct pl_told_keys *told;        /* borrowed, nullable: gets the keys that are not read */
    uint64_t line;                    /* of the row, for `told` */
    uint64_t strange;                 /* messages whose role is none that is known; V3 */
    char strange_role[PL_SHOWN];      /* that of the first */
    const struct pl_columns *columns; /* borrowed, nullable: other names of keys and roles */
};

void pl_conversation_start(struct pl_conversation *c);  /* forgets the messages, keeps the memory */
void pl_conversation_finish(struct pl_conversation *c); /* frees; leaves {0} */

/* Appends the messages of the array at the cursor. False: s says why. */
bool pl_conversation_read(struct pl_conversation *c, struct pl_scan *s, enum pl_spelling spelling);
/* Appends the string at the cursor as one message. */
bool pl_conversation_read_text(struct pl_conversation *c, struct pl_scan *s,
                               enum pl_chat_role role);
/* [n]; valid until the next call that adds. */
const struct pl_chat_message *pl_conversation_messages(struct pl_conversation *c);
/* Of a system message that was put before a list: false when the list begins with another one, true
 * after dropping it when the list says the same. */
bool pl_conversation_join_system(struct pl_conversation *c);

/* The role that a word stands for: by the configuration, or by the words that are known. */
bool pl_conversation_role(const struct pl_conversation *c, const char *word, size_t n,
                          enum pl_chat_role *out);

/* Whether a key of the row is one of these, which a program is handed. */
bool pl_conversation_takes(const struct pl_text *key);
/* Takes note of the value at the cursor as `tools`, `documents` or `chat_template_kwargs`. */
bool pl_conversation_note(struct pl_conversation *c, struct pl_scan *s, const char *key);

#endif
