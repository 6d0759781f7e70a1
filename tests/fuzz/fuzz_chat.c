/* fuzz_chat.c - a conversation through every template: a line is a message, its first letter the
 * role. */
#include "estimator/config/scalar.h"
#include "runtime/data/chat/chat.h"
#include "runtime/data/chat/render.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGES_MOST 16

/* Returns the text after the first character of a line, which may have several bytes. */
static const char *content_of(const char *line, const char *end) {
    if (line < end) line++;
    while (line < end && (*line & 0xC0) == 0x80)
        line++;
    return line;
}

static size_t cut_messages(const char *text, struct pl_chat_message out[MESSAGES_MOST]) {
    size_t n = 0;
    for (const char *end; *text && n < MESSAGES_MOST; text = *end ? end + 1 : end) {
        end = strchrnul(text, '\n');
        const char *content = content_of(text, end);
        out[n++] = (struct pl_chat_message){
            .role = *text == 's'   ? PL_CHAT_SYSTEM
                    : *text == 'u' ? PL_CHAT_USER
                                   : PL_CHAT_ASSISTANT,
            .content = content,
            .n = (size_t)(end - content),
        };
    }
    return n;
}

/* Spans lie in the text. Their order is the template's business. */
static void check_spans(const struct pl_chat_text *t, size_t n) {
    FUZZ_CHECK(t->n_spans == n && !t->text.failed);
    for (size_t i = 0; i < n; i++) {
        const struct pl_chat_span *s = &t->spans[i];
        if (s->lost) continue;
        FUZZ_CHECK(s->begin <= s->end && s->end <= t->text.len);
    }
}

static void render(const struct pl_chat_template *t, const struct pl_chat_message *m, size_t n,
                   bool generate) {
    const struct pl_chat_options o = {.date = {2025, 1, 2}, .generate = generate};
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    if (fuzz_outcome(pl_chat_render(t, &o, m, n, &out, &d), &d)) check_spans(&out, n);
    pl_chat_text_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_chat_message messages[MESSAGES_MOST];
    struct pl_chat_date date;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    if (pl_chat_date_parse(text, &date)) FUZZ_CHECK(date.month >= 1 && date.month <= 12);
    if (pl_utf8_valid(text)) { /* every reader of conversations has made sure of it */
        size_t n = cut_messages(text, messages);
        for (size_t i = 0; n && i < 2 * pl_chat_table_rows; i++)
            render(&pl_chat_table[i / 2], messages, n, i % 2);
    }
    free(text);
    return 0;
}
