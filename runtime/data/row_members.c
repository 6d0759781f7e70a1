#include "runtime/data/row_members.h"

#include <ctype.h>
#include <string.h>

static bool is_word(char c) {
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

bool pl_member_named(const char *name, const char *other) {
    for (const char *a = name, *b = other;; a++, b++) {
        while (*a && !is_word(*a))
            a++;
        while (*b && !is_word(*b))
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

/* M2 */
static bool is_plain(const struct pl_text *key) {
    const char *name = pl_text_str(key);
    bool ok = key->len && key->len < PL_MEMBER_NAME;
    for (size_t i = 0; ok && i < key->len; i++)
        ok = (unsigned char)name[i] >= ' ' && name[i] != 0x7F && !strchr("'\"\\$`", name[i]);
    return ok;
}

/* Keys of messages, the best first; input and output are a question and its answer. */
static const char *const roles[] = {"role", "from", "speaker", "sender", "author", "input", "user"};
static const char *const contents[] = {"content",   "value", "text",  "message",
                                       "utterance", "body",  "output"};
#define N_KEYS (sizeof roles / sizeof *roles)

/* The least of *best and the place of the name in a list. */
static void take_best(const char *const *list, const char *name, size_t *best) {
    for (size_t i = 0; i < *best; i++)
        if (strcmp(list[i], name) == 0) *best = i;
}

bool pl_message_keys(struct pl_scan s, const char **role, const char **content) {
    struct pl_text key = {0};
    size_t r = N_KEYS, c = N_KEYS;
    if (pl_scan_peek(&s) == PL_SCAN_OBJECT && pl_scan_enter(&s)) {
        while (pl_scan_next_key(&s, &key)) {
            if (pl_scan_peek(&s) == PL_SCAN_STRING) take_best(roles, pl_text_str(&key), &r);
            take_best(contents, pl_text_str(&key), &c);
            if (!pl_scan_skip(&s)) break;
        }
    }
    pl_text_finish(&key);
    const bool is_message = r < N_KEYS && c < N_KEYS;
    *role = is_message ? roles[r] : NULL;
    *content = is_message ? contents[c] : NULL;
    return is_message;
}

/* The first key of an object and the kind of its value. */
static void look_into_object(struct pl_scan s, struct pl_member *m) {
    struct pl_text key = {0};
    for (int i = 0; (i || pl_scan_enter(&s)) && pl_scan_next_key(&s, &key); i++) {
        const char *name = pl_text_str(&key);
        if (!i) m->first = pl_scan_peek(&s);
        if (!i) m->numbered = key.len && strspn(name, "0123456789") == key.len;
        if (pl_member_named(name, "messages") || pl_member_named(name, "conversations"))
            m->holds_chat = true;
        if (!pl_scan_skip(&s)) break;
    }
    pl_text_finish(&key);
}

static bool read_member(struct pl_scan *s, const struct pl_text *key, struct pl_member *m) {
    struct pl_scan value = *s;
    *m = (struct pl_member){.kind = pl_scan_peek(&value)};
    memcpy(m->name, key->data, key->len);
    if (m->kind == PL_SCAN_OBJECT) look_into_object(value, m);
    if (m->kind == PL_SCAN_STRING)
        m->holds_chat = value.n - value.at > 2 && strchr("[{", value.text[value.at + 1]);
    if (m->kind == PL_SCAN_ARRAY && pl_scan_enter_array(&value) && pl_scan_next_element(&value)) {
        m->first = pl_scan_peek(&value);
        pl_message_keys(value, &m->role, &m->content);
    }
    return pl_scan_skip(s);
}

bool pl_members_read(const char *text, size_t n, struct pl_members *out) {
    struct pl_scan s = {.text = text, .n = n};
    struct pl_text key = {0};
    bool ok = pl_scan_peek(&s) == PL_SCAN_OBJECT && pl_scan_enter(&s), more = ok;
    out->n = 0;
    /* M1 */
    while (ok && out->n < PL_MEMBERS_MOST && (more = pl_scan_next_key(&s, &key))) {
        const bool plain = is_plain(&key);
        ok = plain ? read_member(&s, &key, &out->m[out->n]) : pl_scan_skip(&s);
        out->n += ok && plain;
    }
    out->all = !more;
    pl_text_finish(&key);
    return ok && s.err == PL_ERR_OK;
}

const struct pl_member *pl_member_pick(const struct pl_members *r, const char *const *names,
                                       enum pl_scan_kind kind, const struct pl_member *taken) {
    for (; *names; names++)
        for (int i = 0; i < r->n; i++)
            if (r->m[i].kind == kind && &r->m[i] != taken && pl_member_named(r->m[i].name, *names))
                return &r->m[i];
    return NULL;
}
