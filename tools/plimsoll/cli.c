/* cli.c - argv -> struct pl_cli. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/alloc.h"
#include "estimator/base/home_path.h"
#include "estimator/base/units.h"
#include "estimator/config/key_table.h"
#include "estimator/config/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_flag_info flags[PL_FLAG_COUNT] = {
#define X(id, name, letter, value, key, unit, help) {name, value, key, unit, help, letter},
    PL_CLI_FLAGS(X)
#undef X
};

const struct pl_flag_info *pl_cli_flags(void) {
    return flags;
}

static const char *const synonyms[] = {
#define X(synonym, key) #synonym,
    PL_CONFIG_SYNONYMS(X)
#undef X
};
#define N_SYNONYMS (sizeof synonyms / sizeof *synonyms)

char *pl_cli_flag_text(const char *name, char buf[PL_FLAG_TEXT]) {
    snprintf(buf, PL_FLAG_TEXT, "--%s", name);
    for (char *p = buf; *p; p++)
        if (*p == '_') *p = '-';
    return buf;
}

bool pl_cli_next_choice(const char **rest, const char **s, int *n) {
    if (!**rest) return false;
    size_t len = strcspn(*rest, "|");
    *s = *rest;
    *n = (int)len;
    *rest += len + ((*rest)[len] == '|');
    return true;
}

/* --- names ----------------------------------------------------------------------------------- */

_Static_assert(PL_FLAG_COUNT - PL_FLAG_SHARED <= PL_FLAG_BITS_MAX, "a bit for every flag");

static bool is_allowed(const struct pl_command *c, int flag) {
    return pl_flag_in((struct pl_flag_set){true, c ? c->flags : 0}, flag);
}

static int find_flag(const struct pl_command *c, const char *name) {
    for (int i = 0; i < PL_FLAG_COUNT; i++)
        if (is_allowed(c, i) && strcmp(flags[i].name, name) == 0) return i;
    return -1;
}

/* Returns the choices of a key that needs no value after its flag; NULL: it needs one. */
static const char *choices_of_switch(enum pl_key_id key) {
    uint32_t n;
    const struct pl_key_info *info = key != PL_KEY_COUNT ? &pl_key_table(&n)[key] : NULL;
    if (info && strcmp(info->type, "BOOL") == 0) return "true|false";
    return info && strcmp(info->choices, "auto|true|false") == 0 ? info->choices : NULL;
}

static const char *nearest_flag(const struct pl_command *c, const char *name) {
    const char *names[PL_FLAG_COUNT + PL_KEY_COUNT + N_SYNONYMS];
    size_t n = 0;
    for (int i = 0; i < PL_FLAG_COUNT; i++)
        if (is_allowed(c, i)) names[n++] = flags[i].name;
    if (c && c->keys) {
        uint32_t n_keys;
        const struct pl_key_info *keys = pl_key_table(&n_keys);
        for (uint32_t i = 0; i < n_keys; i++)
            names[n++] = keys[i].key;
        for (size_t i = 0; i < N_SYNONYMS; i++)
            names[n++] = synonyms[i];
    }
    return pl_text_nearest(name, names, n);
}

static void hint_help(const struct pl_command *c, struct pl_diag *d) {
    if (c) pl_diag_hint(d, "run `plimsoll help %s`", c->name);
}

/* `name` is NULL for a letter, which is near everything and nothing. */
static pl_err unknown_flag(const struct pl_command *c, const char *word, const char *name,
                           struct pl_diag *d) {
    char text[PL_FLAG_TEXT];
    int shown = (int)strcspn(word, "=");
    const char *near = name ? nearest_flag(c, name) : NULL;
    if (c)
        pl_diag_set(d, PL_ERR_USAGE, "`%s` knows no flag `%.*s`", c->name, shown, word);
    else
        pl_diag_set(d, PL_ERR_USAGE, "no flag `%.*s` before the command", shown, word);
    if (near)
        pl_diag_hint(d, "did you mean `%s`?", pl_cli_flag_text(near, text));
    else
        hint_help(c, d);
    return PL_ERR_USAGE;
}

static pl_err unknown_command(const char *word, struct pl_diag *d) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    const char *names[32];
    size_t n_names = 0;
    for (uint32_t i = 0; i < n && n_names < sizeof names / sizeof *names; i++)
        names[n_names++] = commands[i].name;
    const char *near = pl_text_nearest(word, names, n_names);
    pl_diag_set(d, PL_ERR_USAGE, "no command is called `%s`", word);
    if (near) pl_diag_hint(d, "did you mean `plimsoll %s`?", near);
    return PL_ERR_USAGE;
}

/* --- one word after another ------------------------------------------------------------------ */

struct cursor {
    int argc, i; /* argv[i] is the next word */
    char *const *argv;
};

static pl_err add_override(struct pl_cli *cli, const char *key, const char *value, const char *unit,
                           struct pl_diag *d) {
    size_t size = strlen(key) + strlen(value) + strlen(unit) + 2;
    char *s = pl_malloc(size);
    if (!s) return pl_host_oom(d, "the command line");
    snprintf(s, size, "%s=%s%s", key, value, unit);
    cli->owned[cli->n_owned++] = s;
    cli->overrides[cli->n_overrides++] = s;
    return PL_ERR_OK;
}

/* A value that is a path, which the shell leaves as it is after `--output=`. */
static pl_err take_path(struct pl_cli *cli, const struct pl_flag_info *f, const char **value,
                        struct pl_diag *d) {
    static const char *const paths[] = {"DIR", "FILE", "PATH", "OLD.json"};
    struct pl_home_problem problem;
    char text[PL_FLAG_TEXT], *path = NULL;
    bool is_path = false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        is_path |= strcmp(f->value, paths[i]) == 0;
    if (!is_path || (**value != '~' && !strchr(*value, '$'))) return PL_ERR_OK;
    pl_err err = pl_home_path(*value, &path, &problem);
    if (err == PL_ERR_HOST_OOM) return pl_host_oom(d, "the command line");
    if (err != PL_ERR_OK) {
        pl_diag_set(d, PL_ERR_USAGE, "%s: %s", pl_cli_flag_text(f->name, text), problem.what);
        pl_diag_hint(d, "%s", problem.hint);
        return PL_ERR_USAGE;
    }
    *value = cli->owned[cli->n_owned++] = path;
    return PL_ERR_OK;
}

/* The word after a flag belongs to it unless it is a long flag: numbers may start with one dash. */
static const char *next_value(struct cursor *c) {
    if (c->i >= c->argc || strncmp(c->argv[c->i], "--", 2) == 0) return NULL;
    return c->argv[c->i++];
}

static bool is_choice(const char *choices, const char *value) {
    const char *s;
    int n;
    while (pl_cli_next_choice(&choices, &s, &n))
        if (strlen(value) == (size_t)n && memcmp(s, value, (size_t)n) == 0) return true;
    return false;
}

static pl_err check_flag_value(const struct pl_flag_info *f, const char *value, struct pl_diag *d) {
    char text[PL_FLAG_TEXT];
    if (strchr(f->value, '|') && !is_choice(f->value, value))
        return pl_diag_set(d, PL_ERR_USAGE, "%s is one of %s, not `%s`",
                           pl_cli_flag_text(f->name, text), f->value, value);
    if (f->unit[0] && (!*value || strspn(value, "0123456789.") != strlen(value)))
        return pl_diag_set(d, PL_ERR_USAGE, "%s wants a plain number of %s, not `%s`",
                           pl_cli_flag_text(f->name, text), f->unit, value);
    return PL_ERR_OK;
}

/* A card without memory is a slip, not a question. */
static pl_err check_size(const struct pl_flag_info *f, const char *value, struct pl_diag *d) {
    char text[PL_FLAG_TEXT], size[64];
    uint64_t bytes;
    if (strcmp(f->key, "vram_budget") != 0) return PL_ERR_OK;
    snprintf(size, sizeof size, "%s%s", value, f->unit);
    if (!pl_bytes_parse(size, &bytes) || bytes > 0) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE, "%s must be above 0, not `%s`",
                       pl_cli_flag_text(f->name, text), value);
}

static pl_err take_flag(struct pl_cli *cli, int id, const char *value, struct cursor *c,
                        struct pl_diag *d) {
    const struct pl_flag_info *f = &flags[id];
    char text[PL_FLAG_TEXT];
    if (!f->value[0]) {
        if (value)
            return pl_diag_set(d, PL_ERR_USAGE, "%s takes no value",
                               pl_cli_flag_text(f->name, text));
        cli->flag[id] = "";
        return PL_ERR_OK;
    }
    if (!value) value = next_value(c);
    if (!value)
        return pl_diag_set(d, PL_ERR_USAGE, "%s needs a value: %s", pl_cli_flag_text(f->name, text),
                           f->value);
    PL_TRY(check_flag_value(f, value, d));
    PL_TRY(check_size(f, value, d));
    PL_TRY(take_path(cli, f, &value, d));
    cli->flag[id] = value;
    return f->key[0] ? add_override(cli, f->key, value, f->unit, d) : PL_ERR_OK;
}

/* A switch among the keys may stand alone: --use-rslora, --no-oom-recovery. */
static pl_err take_key(struct pl_cli *cli, const char *name, enum pl_key_id key, const char *value,
                       struct cursor *c, struct pl_diag *d) {
    char text[PL_FLAG_TEXT];
    const char *choices = choices_of_switch(key);
    if (!value && choices) {
        bool ignored, follows = c->i < c->argc && (is_choice(choices, c->argv[c->i]) ||
                                                   pl_scalar_bool(c->argv[c->i], &ignored));
        value = follows ? c->argv[c->i++] : "true";
    }
    if (!value) value = next_value(c);
    if (!value)
        return pl_diag_set(d, PL_ERR_USAGE, "%s needs a value", pl_cli_flag_text(name, text));
    return add_override(cli, name, value, "", d);
}

static pl_err take_long(struct pl_cli *cli, const char *word, struct cursor *c, struct pl_diag *d) {
    const struct pl_command *command = cli->command;
    char name[PL_FLAG_NAME];
    const char *equals = strchr(word, '=');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (char *p = name; *p; p++)
        if (*p == '-') *p = '_';

    const char *value = equals ? equals + 1 : NULL;
    int id = find_flag(command, name);
    if (id >= 0) return take_flag(cli, id, value, c, d);
    if (command && command->keys) {
        const enum pl_key_id key = pl_key_find(name);
        if (key != PL_KEY_COUNT) return take_key(cli, name, key, value, c, d);
        if (!value && strncmp(name, "no_", 3) == 0 && choices_of_switch(pl_key_find(name + 3)))
            return add_override(cli, name + 3, "false", "", d);
    }
    return unknown_flag(command, word, name, d);
}

static pl_err take_letters(struct pl_cli *cli, const char *word, struct cursor *c,
                           struct pl_diag *d) {
    for (const char *p = word + 1; *p; p++) {
        int id = 0;
        while (id < PL_FLAG_COUNT && flags[id].letter != *p)
            id++;
        if (id == PL_FLAG_COUNT) return unknown_flag(cli->command, word, NULL, d);
        PL_TRY(take_flag(cli, id, NULL, c, d));
    }
    return PL_ERR_OK;
}

/* key=value, told from a path by what stands before the `=`: keys are [a-z0-9_]. */
static bool is_assignment(const char *word) {
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && word[n] == '=';
}

static pl_err take_word(struct pl_cli *cli, const char *word, bool plain, struct pl_diag *d) {
    const struct pl_command *command = cli->command;
    if (!command) {
        cli->command = pl_cli_command_find(word);
        return cli->command ? PL_ERR_OK : unknown_command(word, d);
    }
    if (command->keys && !plain && is_assignment(word)) {
        int n = (int)strcspn(word, "=");
        char name[PL_FLAG_NAME];
        snprintf(name, sizeof name, "%.*s", n, word);
        return add_override(cli, name, word + n + 1, "", d);
    }
    if (cli->n_args == command->max_args) {
        pl_diag_set(d, PL_ERR_USAGE, "`%s` takes no argument `%s`", command->name, word);
        hint_help(command, d);
        return PL_ERR_USAGE;
    }
    cli->args[cli->n_args++] = word;
    return PL_ERR_OK;
}

static pl_err take_all(struct pl_cli *cli, struct cursor *c, struct pl_diag *d) {
    bool plain = false; /* after `--` nothing is a flag */
    while (c->i < c->argc) {
        const char *word = c->argv[c->i++];
        if (plain || word[0] != '-' || !word[1])
            PL_TRY(take_word(cli, word, plain, d));
        else if (strcmp(word, "--") == 0)
            plain = true;
        else if (word[1] == '-')
            PL_TRY(take_long(cli, word, c, d));
        else
            PL_TRY(take_letters(cli, word, c, d));
    }
    return PL_ERR_OK;
}

static pl_err check_complete(const struct pl_cli *cli, struct pl_diag *d) {
    const struct pl_command *command = cli->command;
    if (pl_cli_has(cli, PL_FLAG_HELP) || pl_cli_has(cli, PL_FLAG_VERSION)) return PL_ERR_OK;
    if (!command) return pl_diag_set(d, PL_ERR_USAGE, "no command was given");
    if (cli->n_args >= command->min_args) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "`%s` needs more: plimsoll %s %s", command->name, command->name,
                command->synopsis);
    hint_help(command, d);
    return PL_ERR_USAGE;
}

pl_err pl_cli_parse(struct pl_cli *cli, int argc, char *const argv[], struct pl_diag *d) {
    *cli = (struct pl_cli){.argv = argv};
    /* Looked for ahead of parsing, so that a usage error before it is shown as JSON too. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) cli->flag[PL_FLAG_JSON] = "";

    size_t most = (size_t)(argc > 0 ? argc : 1);
    cli->args = pl_calloc(most, sizeof *cli->args);
    cli->overrides = pl_calloc(most, sizeof *cli->overrides);
    cli->owned = pl_calloc(2 * most, sizeof *cli->owned); /* a flag may be a path and a key */
    if (!cli->args || !cli->overrides || !cli->owned) return pl_host_oom(d, "the command line");
    struct cursor c = {argc, 1, argv};
    PL_TRY(take_all(cli, &c, d));
    return check_complete(cli, d);
}

void pl_cli_finish(struct pl_cli *cli) {
    if (cli->owned)
        for (uint32_t i = 0; i < cli->n_owned; i++)
            free(cli->owned[i]);
    free(cli->owned);
    free(cli->overrides);
    free(cli->args);
    *cli = (struct pl_cli){0};
}

/* Digits, and no plus before them: strtod would also take "nan", "inf" and hexadecimal. */
static bool parse_number(const char *text, double *out) {
    char *end;
    if (!*text || *text == '+' || strspn(text, "0123456789.eE+-") != strlen(text)) return false;
    *out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*out);
}

pl_err pl_cli_number(const struct pl_cli *cli, enum pl_cli_flag flag, double low, double high,
                     bool whole, double *out, struct pl_diag *d) {
    const char *value = cli->flag[flag];
    char text[PL_FLAG_TEXT];
    double v;
    if (!value) return PL_ERR_OK;
    if (!parse_number(value, &v) || v < low || v > high || (whole && v != floor(v)))
        return pl_diag_set(d, PL_ERR_USAGE, "%s wants a %snumber from %.10g to %.10g, not `%.80s`",
                           pl_cli_flag_text(pl_cli_flags()[flag].name, text), whole ? "whole " : "",
                           low, high, value);
    *out = v;
    return PL_ERR_OK;
}
