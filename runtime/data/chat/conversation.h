/* conversation.h - reads a list of messages from JSON for templates.
 *
 * In: a scanner at a value.  Out: messages in order, and their own settings of training.
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

/* The spelling of keys in messages to the user; both spellings are read. */
enum pl_spelling { PL_SPELLING_OPENAI, PL_SPELLING_SHAREGPT };

/* The value of `weight`, `train` or another key of that meaning in a message. */
enum pl_message_train { PL_MESSAGE_BY_ROLE, PL_MESSAGE_MASKED, PL_MESSAGE_TRAINED };

/* The position of a value in the row; end 0: it is absent. */
struct pl_json_span {
    size_t begin, end;
};

struct pl_conversation {
    bool whole;      /* set by the caller, and kept by pl_conversation_start */
    const char *row; /* text that the spans refer to, borrowed */
    struct pl_json_span tools, documents, more; /* values of the row; more: chat_template_kwargs */
    struct pl_json_span *json; /* [n], owned: each message as JSON; end 0 = it has only role and
                                  content */
    struct pl_chat_message *messages; /* [n], owned; pl_conversation_messages sets content */
    enum pl_message_train *train;     /* [n], owned */
    size_t *begins;                   /* [n], owned: begin of each content in `text` */
    size_t n, cap;
    struct pl_text text, key;         /* contents one after the other; scratch */
    struct pl_told_keys *told;        /* borrowed, nullable; receives the keys that are not read */
    uint64_t line;                    /* line of the row, for `told` */
    uint64_t strange;                 /* messages with an unknown role (V3) */
    char strange_role[PL_SHOWN];      /* the first unknown role */
    const struct pl_columns *columns; /* borrowed, nullable: other names of keys and roles */
};

void pl_conversation_start(struct pl_conversation *c);  /* forgets the messages, keeps the memory */
void pl_conversation_finish(struct pl_conversation *c); /* frees; leaves {0} */

/* Appends the messages of the array at the cursor. False: s holds the reason. */
bool pl_conversation_read(struct pl_conversation *c, struct pl_scan *s, enum pl_spelling spelling);
/* Appends the object at the cursor as one message. */
bool pl_conversation_read_one(struct pl_conversation *c, struct pl_scan *s,
                              enum pl_spelling spelling);
/* Appends the string at the cursor as one message. */
bool pl_conversation_read_text(struct pl_conversation *c, struct pl_scan *s,
                               enum pl_chat_role role);
/* Appends a text as one message; it is copied. */
bool pl_conversation_add(struct pl_conversation *c, struct pl_scan *s, enum pl_chat_role role,
                         const struct pl_text *text);
/* Returns [n] messages, valid until the next call that adds. */
const struct pl_chat_message *pl_conversation_messages(struct pl_conversation *c);
/* Handles a system message that was put before a list: false if the list begins with another one;
 * true, after dropping it, if the list says the same. */
bool pl_conversation_join_system(struct pl_conversation *c);

/* Finds the role that a word stands for: by the configuration, or by the words that are known. */
bool pl_conversation_role(const struct pl_conversation *c, const char *word, size_t n,
                          enum pl_chat_role *out);

/* True if a key of the row is one of these, which are passed to a program. */
bool pl_conversation_takes(const struct pl_text *key);
/* Records the value at the cursor as `tools`, `documents` or `chat_template_kwargs`. */
bool pl_conversation_note(struct pl_conversation *c, struct pl_scan *s, const char *key);

#endif
