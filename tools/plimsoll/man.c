/* man.c - tables -> roff. */
#include "tools/plimsoll/man.h"

#include "estimator/config/key_table.h"
#include "estimator/config/key_reference.h"

#include <string.h>

/* --- text ------------------------------------------------------------------------------------ */

/* A bare `-` is a hyphen, which a terminal may show as another character than the one to type;
 * a point or an apostrophe at the beginning of a line is a request. A list of choices, which may be
 * longer than a line, is broken after a bar. */
static void add_escaped(struct pl_text *t, const char *s, size_t n, bool set_bold) {
    bool bold = false, line_start = t->len == 0 || t->data[t->len - 1] == '\n';
    for (size_t i = 0; i < n; i++) {
        if (line_start && (s[i] == '.' || s[i] == '\'')) pl_text_add(t, "\\&");
        line_start = s[i] == '\n';
        if (s[i] == '`' && set_bold)
            pl_text_add(t, (bold = !bold) ? "\\fB" : "\\fR");
        else if (s[i] == '\\')
            pl_text_add(t, "\\e");
        else if (s[i] == '-')
            pl_text_add(t, "\\-");
        else if (s[i] == '|')
            pl_text_add(t, "|\\:");
        else
            pl_text_addn(t, s + i, 1);
    }
}

static void add_text(struct pl_text *t, const char *s) {
    add_escaped(t, s, strlen(s), true);
}

static void add_verbatim(struct pl_text *t, const char *s) {
    add_escaped(t, s, strlen(s), false);
}

static void add_bold(struct pl_text *t, const char *s) {
    pl_text_add(t, "\\fB");
    add_verbatim(t, s);
    pl_text_add(t, "\\fR");
}

static void add_heading(struct pl_text *t, const char *title) {
    pl_text_addf(t, ".SH %s\n", title);
}

/* Ragged and without hyphenation: a flag in two halves cannot be searched for. */
static void add_title(struct pl_text *t, const char *name, int section, const char *book) {
    pl_text_addf(t, ".TH \"%s\" %d \"\" \"Plimsoll %s\" \"%s\"\n.nh\n.ad l\n", name, section,
                 PL_VERSION, book);
}

static void add_name(struct pl_text *t, const char *name, const char *summary) {
    add_heading(t, "NAME");
    add_verbatim(t, name);
    pl_text_add(t, " \\- ");
    add_text(t, summary);
    pl_text_add(t, "\n");
}

static void add_examples(struct pl_text *t, const char *examples) {
    add_heading(t, "EXAMPLES");
    pl_text_add(t, ".nf\n");
    add_verbatim(t, examples);
    pl_text_add(t, ".fi\n");
}

/* --- parts of several pages ------------------------------------------------------------------ */

static void add_flags(struct pl_text *t, struct pl_flag_set set) {
    const struct pl_flag_info *flags = pl_cli_flags();
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        if (!pl_flag_in(set, i)) continue;
        char text[PL_FLAG_TEXT], letter[3] = {'-', flags[i].letter, 0};
        pl_text_add(t, ".TP\n");
        if (flags[i].letter) {
            add_bold(t, letter);
            pl_text_add(t, ", ");
        }
        add_bold(t, pl_cli_flag_text(flags[i].name, text));
        if (flags[i].value[0]) {
            pl_text_add(t, " \\fI");
            add_verbatim(t, flags[i].value);
            pl_text_add(t, "\\fR");
        }
        pl_text_add(t, "\n");
        add_text(t, flags[i].help);
        pl_text_add(t, "\n");
    }
}

static void add_exit_status(struct pl_text *t) {
    size_t n;
    const struct pl_cli_exit *exits = pl_cli_exits(&n);
    add_heading(t, "EXIT STATUS");
    for (size_t i = 0; i < n; i++) {
        pl_text_addf(t, ".TP\n.B %s\n", exits[i].status);
        add_text(t, exits[i].meaning);
        pl_text_add(t, "\n");
    }
}

/* Every other page, but for `self`. */
static void add_see_also(struct pl_text *t, const char *self) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    add_heading(t, "SEE ALSO");
    if (self) pl_text_add(t, ".BR plimsoll (1),\n");
    for (uint32_t i = 0; i < n; i++) {
        if (self && strcmp(commands[i].name, self) == 0) continue;
        pl_text_add(t, ".BR plimsoll\\-");
        add_verbatim(t, commands[i].name);
        pl_text_add(t, " (1),\n");
    }
    pl_text_add(t, ".BR plimsoll.yaml (5)\n");
}

/* --- pages ----------------------------------------------------------------------------------- */

static void write_program(struct pl_text *t) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    add_title(t, "PLIMSOLL", 1, "User Commands");
    add_name(t, "plimsoll", pl_cli_summary());
    add_heading(t, "SYNOPSIS");
    pl_text_add(t, ".B plimsoll\n.I COMMAND\n[flags]\n");
    add_heading(t, "DESCRIPTION");
    add_text(t, "A training step is built as data, every tensor and every operation of it, and\n"
                "each tensor gets an offset before anything is allocated. What is estimated is\n"
                "what is reserved, byte for byte. stdout carries the answer and nothing else;\n"
                "progress, notes and errors go to stderr.\n");
    add_heading(t, "COMMANDS");
    for (uint32_t i = 0; i < n; i++) {
        pl_text_add(t, ".TP\n.B ");
        add_verbatim(t, commands[i].name);
        pl_text_add(t, "\n");
        add_text(t, commands[i].summary);
        pl_text_add(t, "\n");
    }
    add_heading(t, "OPTIONS");
    add_text(t, "Of every command:\n");
    add_flags(t, PL_FLAGS_SHARED);
    add_exit_status(t);
    add_heading(t, "ENVIRONMENT");
    pl_text_add(t, ".TP\n.B NO_COLOR\n");
    add_text(t, "set to anything: no colours, unless `--color always` asks for them\n");
    pl_text_add(t, ".TP\n.B FORCE_COLOR\n");
    add_text(t, "set to anything but 0: colours also without a terminal\n");
    pl_text_add(t, ".TP\n.BR HF_HUB_CACHE \", \" HF_HOME \", \" XDG_CACHE_HOME\n");
    add_text(t, "where the Hugging Face hub cache is, in which models are found by their "
                "ids;\ncaches of earlier runs are in `plimsoll` below XDG_CACHE_HOME\n");
    pl_text_add(t, ".SH EXAMPLES\n.nf\n");
    for (uint32_t i = 0; i < n; i++) {
        add_escaped(t, commands[i].examples, strcspn(commands[i].examples, "\n"), false);
        pl_text_add(t, "\n");
    }
    pl_text_add(t, ".fi\n");
    add_see_also(t, NULL);
}

static void write_command(const struct pl_command *c, struct pl_text *t) {
    struct pl_text name = {0};
    pl_text_addf(&name, "plimsoll-%s", c->name);
    add_title(t, pl_text_str(&name), 1, "User Commands");
    add_name(t, pl_text_str(&name), c->summary);
    t->failed |= name.failed;
    pl_text_finish(&name);
    add_heading(t, "SYNOPSIS");
    pl_text_add(t, ".B plimsoll ");
    add_verbatim(t, c->name);
    pl_text_add(t, "\n");
    add_verbatim(t, c->synopsis);
    pl_text_addf(t, "%s[flags]\n", c->synopsis[0] ? "\n" : "");
    if (c->text[0] || c->keys) add_heading(t, "DESCRIPTION");
    add_text(t, c->text);
    if (c->keys) {
        pl_text_add(t, c->text[0] ? ".PP\n" : "");
        add_text(t, "Every configuration key is a flag (`--lora-r 8`) and an assignment\n"
                    "(`lora_r=8`) here; both win over the file. They are described in\n");
        pl_text_add(t, ".BR plimsoll.yaml (5).\n");
    }
    add_heading(t, "OPTIONS");
    add_flags(t, PL_FLAGS_OWN(c));
    if (c->flags) pl_text_add(t, ".SS Of every command\n");
    add_flags(t, PL_FLAGS_SHARED);
    add_exit_status(t);
    add_examples(t, c->examples);
    add_see_also(t, c->name);
}

static void write_key(enum pl_key_id key, struct pl_text *t) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[key];
    struct pl_text values = {0}, synonyms = {0};
    pl_key_write_values(key, &values);
    pl_key_write_synonyms(key, &synonyms);
    pl_text_addf(t, ".TP\n.B %s\n", k->key);
    add_text(t, k->help);
    pl_text_add(t, "\n.RS\n");
    add_text(t, pl_key_type_label(key));
    if (values.len) {
        pl_text_add(t, ": ");
        add_text(t, values.data);
    }
    pl_text_add(t, "; ");
    add_text(t, k->def[0] ? "default " : "unset by default");
    add_bold(t, k->def);
    if (synonyms.len) {
        pl_text_add(t, "; also read as ");
        add_text(t, synonyms.data);
    }
    pl_text_add(t, "\n.RE\n");
    t->failed |= values.failed || synonyms.failed;
    pl_text_finish(&values);
    pl_text_finish(&synonyms);
}

static void write_configuration(struct pl_text *t) {
    add_title(t, "PLIMSOLL.YAML", 5, "File Formats");
    add_name(t, "plimsoll.yaml", "the configuration of a fine-tuning job");
    add_heading(t, "DESCRIPTION");
    add_text(t, pl_key_introduction());
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++) {
        const char *title = pl_key_section((enum pl_key_id)i);
        if (title) pl_text_addf(t, ".SH \"%s\"\n", title);
        write_key((enum pl_key_id)i, t);
    }
    add_examples(t, "model: HuggingFaceTB/SmolLM2-135M\n"
                    "mode: lora\n"
                    "dataset: data/train.jsonl\n"
                    "max_seq_length: 1024\n"
                    "batch_size: auto\n"
                    "global_batch_size: 16\n"
                    "output_dir: output/demo\n");
    add_see_also(t, "plimsoll.yaml");
}

bool pl_man_page(const char *name, struct pl_text *out) {
    static const char prefix[] = "plimsoll-";
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    if (strcmp(name, "plimsoll.1") == 0) {
        write_program(out);
        return true;
    }
    if (strcmp(name, "plimsoll.yaml.5") == 0) {
        write_configuration(out);
        return true;
    }
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    name += sizeof prefix - 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t length = strlen(commands[i].name);
        if (strncmp(name, commands[i].name, length) != 0 || strcmp(name + length, ".1") != 0)
            continue;
        write_command(&commands[i], out);
        return true;
    }
    return false;
}
