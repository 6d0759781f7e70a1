/* row_program.c - Jinja programs of the templates of the table. */
#include "runtime/data/chat/row_program.h"

#include "runtime/data/chat/render.h"

#include <string.h>

static const char *const date_formats[] = {[PL_CHAT_DATE_NONE] = "",
                                           [PL_CHAT_DATE_ABBREVIATED] = "%d %b %Y",
                                           [PL_CHAT_DATE_LONG] = "%d %B %Y",
                                           [PL_CHAT_DATE_ISO] = "%Y-%m-%d"};

static void write_quoted(const char *s, size_t n, struct pl_text *out) {
    pl_text_add(out, "'");
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\n')
            pl_text_add(out, "\\n");
        else
            pl_text_addf(out, s[i] == '\'' || s[i] == '\\' ? "\\%c" : "%c", s[i]);
    }
    pl_text_add(out, "'");
}

/* A literal of a row, which is not empty, as an expression: quoted strings and variables. */
static void write_literal(const struct pl_chat_template *t, const char *s, struct pl_text *out) {
    static const char marks[] = PL_CHAT_BOS PL_CHAT_EOS PL_CHAT_DATE;
    for (const char *join = ""; *s; join = " ~ ") {
        const size_t n = strcspn(s, marks);
        pl_text_add(out, join);
        if (n)
            write_quoted(s, n, out);
        else if (*s == *PL_CHAT_DATE)
            pl_text_addf(out, "strftime_now('%s')", date_formats[t->date]);
        else
            pl_text_add(out, *s == *PL_CHAT_BOS ? "bos_token" : "eos_token");
        s += n ? n : 1;
    }
}

/* {{ 'text' }}; nothing for an empty one. */
static void write_text(const struct pl_chat_template *t, const char *s, struct pl_text *out) {
    if (!s || !*s) return;
    pl_text_add(out, "{{- ");
    write_literal(t, s, out);
    pl_text_add(out, " }}");
}

static void write_turn(const struct pl_chat_template *t, const struct pl_chat_turn *turn,
                       struct pl_text *out) {
    if (!turn->before) return; /* left out, as by the program that was published */
    write_text(t, turn->before, out);
    write_text(t, turn->lead, out);
    pl_text_addf(out, "{{- message['content']%s }}", turn->strip ? " | trim" : "");
    write_text(t, turn->end, out);
    write_text(t, turn->after, out);
}

/* A system turn put before a conversation that has none. */
static void write_default_system(const struct pl_chat_template *t, struct pl_text *out) {
    if (!t->default_system) return;
    const struct pl_chat_turn *turn =
        t->first_system.before ? &t->first_system : &t->turn[PL_CHAT_SYSTEM];
    pl_text_add(out, "{%- if messages[0]['role'] != 'system' %}");
    write_text(t, turn->before, out);
    write_text(t, t->default_system, out);
    write_text(t, turn->end, out);
    write_text(t, turn->after, out);
    pl_text_add(out, "{%- endif %}\n");
}

static void write_messages(const struct pl_chat_template *t, struct pl_text *out) {
    const char *word = "if";
    pl_text_add(out, "{%- for message in messages %}\n");
    if (t->between) {
        pl_text_add(out, "{%- if not loop.first %}");
        write_text(t, t->between, out);
        pl_text_add(out, "{%- endif %}\n");
    }
    if (t->first_system.before) {
        pl_text_add(out, "{%- if loop.first and message['role'] == 'system' %}");
        write_turn(t, &t->first_system, out);
        pl_text_add(out, "\n");
        word = "elif";
    }
    for (enum pl_chat_role role = 0; role < PL_CHAT_ROLES; role++, word = "elif") {
        pl_text_addf(out, "{%%- %s message['role'] == '%s' %%}", word, pl_chat_role_name(role));
        write_turn(t, &t->turn[role], out);
        pl_text_add(out, "\n");
    }
    pl_text_add(out, "{%- else %}{{- raise_exception('unknown role: ' ~ message['role']) }}\n"
                     "{%- endif %}\n{%- endfor %}\n");
}

void pl_chat_write_program(const struct pl_chat_template *t, struct pl_text *out) {
    if (t->program) {
        pl_text_add(out, t->program);
        return;
    }
    write_text(t, t->open, out);
    write_default_system(t, out);
    write_messages(t, out);
    pl_text_add(out, "{%- if add_generation_prompt %}");
    write_text(t, t->generate, out);
    if (t->close) {
        pl_text_add(out, "{%- else %}");
        write_text(t, t->close, out);
    }
    pl_text_add(out, "{%- endif %}");
}
