/* cmd_completion.c - completion scripts for bash, zsh and fish, from the tables of cli.h.
 *
 * A script is a snapshot of the tables: it calls nothing at completion time, so pressing Tab costs
 * no process. Words in the tables are [a-z0-9_-], and ids have letters, digits and
 * [/_.-]; only help texts need quoting. */
#include "estimator/config/key_table.h"
#include "estimator/model/catalogue.h"
#include "tools/plimsoll/cli.h"

#include <string.h>

static bool is_choices(const char *value) {
    return strchr(value, '|') != NULL;
}

static void print_choices(const char *choices) {
    const char *s;
    int n;
    for (const char *sep = ""; pl_cli_next_choice(&choices, &s, &n); sep = " ")
        printf("%s%.*s", sep, n, s);
}

/* Keys whose value is a path; the shell completes file names for them. */
static bool key_is_path(const struct pl_key_info *k) {
    static const char *const names[] = {"model",     "model_config",  "adapter_path", "dataset",
                                        "tokenizer", "dataset_cache", "output_dir",   "resume"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(k->key, names[i]) == 0) return true;
    return false;
}

static bool flag_is_path(const struct pl_flag_info *f) {
    return !strcmp(f->value, "DIR") || !strcmp(f->value, "FILE") || !strcmp(f->value, "PATH");
}

static const char *key_choices(const struct pl_key_info *k) {
    if (k->choices[0]) return k->choices;
    return strcmp(k->type, "BOOL") == 0 ? "true|false" : "";
}

static void print_command_names(void) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%s", i ? " " : "", commands[i].name);
}

static void print_flag_names(struct pl_flag_set set) {
    const struct pl_flag_info *flags = pl_cli_flags();
    char text[PL_FLAG_TEXT];
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        if (!pl_flag_in(set, i)) continue;
        printf(" %s", pl_cli_flag_text(flags[i].name, text));
        if (flags[i].letter) printf(" -%c", flags[i].letter);
    }
}

static void print_topics(void) {
    fputs("keys ", stdout);
    print_command_names();
}

static void print_shells(void) {
    fputs("bash zsh fish", stdout);
}

static void print_ids(void) {
    size_t n;
    const struct pl_known_model *known = pl_catalogue_table(&n);
    const char *sep = "";
    char id[PL_KNOWN_ID];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; pl_catalogue_id(&known[i], j, id); j++, sep = " ")
            printf("%s%s", sep, id);
}

/* Words offered for a positional argument, and what zsh calls them; none where the shell's file
 * names are right, or nothing is. */
static const struct {
    const char *label;
    void (*print)(void);
} arguments[] = {
    [PL_ARG_NONE] = {NULL, NULL},
    [PL_ARG_FILE] = {NULL, NULL},
    [PL_ARG_TOPIC] = {"topic", print_topics},
    [PL_ARG_SHELL] = {"shell", print_shells},
    [PL_ARG_HUB_ID] = {"id", print_ids},
};

/* --- bash ------------------------------------------------------------------------------------ */

static void bash_choices(const char *name, const char *choices) {
    char text[PL_FLAG_TEXT];
    printf("    %s) mapfile -t COMPREPLY < <(compgen -W '", pl_cli_flag_text(name, text));
    print_choices(choices);
    printf("' -- \"$cur\"); return ;;\n");
}

static void bash_values(void) {
    const struct pl_flag_info *flags = pl_cli_flags();
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    puts("    case $prev in");
    for (int i = 0; i < PL_FLAG_COUNT; i++)
        if (is_choices(flags[i].value)) bash_choices(flags[i].name, flags[i].value);
    for (uint32_t i = 0; i < n; i++)
        if (key_choices(&keys[i])[0]) bash_choices(keys[i].key, key_choices(&keys[i]));
    puts("    esac");
}

static void bash_commands(void) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    printf("    case $command in\n    '') words='");
    print_command_names();
    puts("' ;;");
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_command *c = &commands[i];
        printf("    %s)", c->name);
        if (c->flags) {
            printf(" flags+='");
            print_flag_names(PL_FLAGS_OWN(c));
            printf("';");
        }
        if (c->keys) printf(" flags+=\" $keys\";");
        if (arguments[c->arg].print) {
            printf(" words='");
            arguments[c->arg].print();
            printf("' ");
        }
        puts(" ;;");
    }
    puts("    esac");
}

static void print_bash(void) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    char text[PL_FLAG_TEXT];
    puts("# bash completion for plimsoll: source <(plimsoll completion bash)\n"
         "_plimsoll() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
         "    local command='' words='' i flags keys\n"
         "    COMPREPLY=()");
    printf("    flags='");
    print_flag_names(PL_FLAGS_SHARED);
    printf("'\n    keys='");
    for (uint32_t i = 0; i < n; i++)
        printf("%s%s", i ? " " : "", pl_cli_flag_text(keys[i].key, text));
    puts("'\n"
         "    # readline splits --flag=value at the equals sign\n"
         "    if [[ $cur == = ]]; then cur=''\n"
         "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        case ${COMP_WORDS[i]} in\n"
         "        --color) ((i++)) ;;\n"
         "        -*) ;;\n"
         "        *) command=${COMP_WORDS[i]}; break ;;\n"
         "        esac\n"
         "    done");
    bash_values();
    bash_commands();
    puts("    if [[ $cur == -* ]]; then words=$flags; fi\n"
         "    [[ $words ]] || return\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
         "}\n"
         "complete -o default -F _plimsoll plimsoll");
}

/* --- zsh ------------------------------------------------------------------------------------- */

/* Inside '...[help]...': the quote, brackets, colon and backslash are special to _arguments. */
static void zsh_help(const char *help) {
    for (; *help; help++) {
        if (*help == '\'')
            fputs("'\\''", stdout);
        else
            printf(strchr("[]:\\", *help) ? "\\%c" : "%c", *help);
    }
}

static void zsh_action(const char *value, const char *choices, bool path) {
    printf(":%s:", is_choices(value) ? "value" : value);
    if (choices[0]) {
        putchar('(');
        print_choices(choices);
        putchar(')');
    } else if (path) {
        fputs("_files", stdout);
    }
}

static void zsh_flags(struct pl_flag_set set) {
    const struct pl_flag_info *flags = pl_cli_flags();
    char text[PL_FLAG_TEXT];
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        if (!pl_flag_in(set, i)) continue;
        const struct pl_flag_info *f = &flags[i];
        pl_cli_flag_text(f->name, text);
        if (f->letter)
            printf(" '(-%c %s)'{-%c,%s}'[", f->letter, text, f->letter, text);
        else
            printf(" '%s%s[", text, f->value[0] ? "=" : "");
        zsh_help(f->help);
        putchar(']');
        if (f->value[0])
            zsh_action(f->value, is_choices(f->value) ? f->value : "", flag_is_path(f));
        putchar('\'');
    }
}

static void zsh_keys(void) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    char text[PL_FLAG_TEXT];
    for (uint32_t i = 0; i < n; i++) {
        printf("        '%s=[", pl_cli_flag_text(keys[i].key, text));
        zsh_help(keys[i].help);
        putchar(']');
        zsh_action("value", key_choices(&keys[i]), key_is_path(&keys[i]));
        puts("'");
    }
}

static void zsh_argument(const struct pl_command *c) {
    if (c->arg == PL_ARG_FILE) printf(" '*:file:_files'");
    if (!arguments[c->arg].print) return;
    printf(" '*:%s:(", arguments[c->arg].label);
    arguments[c->arg].print();
    printf(")'");
}

static void print_zsh(void) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    puts("#compdef plimsoll\n"
         "# zsh completion for plimsoll: plimsoll completion zsh > \"${fpath[1]}/_plimsoll\"\n"
         "_plimsoll() {\n"
         "    local -a commands global keys\n"
         "    commands=(");
    for (uint32_t i = 0; i < n; i++) {
        printf("        '%s:", commands[i].name);
        zsh_help(commands[i].summary);
        puts("'");
    }
    printf("    )\n    global=(");
    zsh_flags(PL_FLAGS_SHARED);
    puts(" )\n    keys=(");
    zsh_keys();
    puts("    )\n"
         "    if ((CURRENT == 2)); then\n"
         "        if [[ $PREFIX == -* ]]; then _arguments $global\n"
         "        else _describe command commands; fi\n"
         "        return\n"
         "    fi\n"
         "    shift words\n"
         "    ((CURRENT--))\n"
         "    case $words[1] in");
    for (uint32_t i = 0; i < n; i++) {
        printf("    %s) _arguments $global", commands[i].name);
        if (commands[i].keys) printf(" $keys");
        zsh_flags(PL_FLAGS_OWN(&commands[i]));
        zsh_argument(&commands[i]);
        puts(" ;;");
    }
    puts("    esac\n"
         "}\n"
         "if [[ $funcstack[1] == _plimsoll ]]; then _plimsoll \"$@\"\n"
         "else compdef _plimsoll plimsoll; fi");
}

/* --- fish ------------------------------------------------------------------------------------ */

static void fish_quoted(const char *s) {
    putchar('\'');
    for (; *s; s++)
        printf(*s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
    putchar('\'');
}

/* One `complete` line; `command` NULL: offered everywhere. value "" marks a switch. */
static void fish_flag(const char *command, const char *name, char letter, const char *value,
                      const char *choices, bool path, const char *help) {
    char text[PL_FLAG_TEXT];
    fputs("complete -c plimsoll", stdout);
    if (command) printf(" -n '__fish_seen_subcommand_from %s'", command);
    printf(" -l %s", pl_cli_flag_text(name, text) + 2);
    if (letter) printf(" -s %c", letter);
    if (value[0]) fputs(path ? " -r -F" : " -x", stdout);
    if (choices[0]) {
        fputs(" -a '", stdout);
        print_choices(choices);
        putchar('\'');
    }
    fputs(" -d ", stdout);
    fish_quoted(help);
    putchar('\n');
}

static void fish_flags(const char *command, struct pl_flag_set set) {
    const struct pl_flag_info *flags = pl_cli_flags();
    for (int i = 0; i < PL_FLAG_COUNT; i++)
        if (pl_flag_in(set, i))
            fish_flag(command, flags[i].name, flags[i].letter, flags[i].value,
                      is_choices(flags[i].value) ? flags[i].value : "", flag_is_path(&flags[i]),
                      flags[i].help);
}

static void fish_command(const struct pl_command *c) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    printf("complete -c plimsoll -n __fish_use_subcommand -a %s -d ", c->name);
    fish_quoted(c->summary);
    putchar('\n');
    fish_flags(c->name, PL_FLAGS_OWN(c));
    for (uint32_t i = 0; c->keys && i < n; i++)
        fish_flag(c->name, keys[i].key, 0, "value", key_choices(&keys[i]), key_is_path(&keys[i]),
                  keys[i].help);
    printf("complete -c plimsoll -n '__fish_seen_subcommand_from %s'", c->name);
    if (c->arg == PL_ARG_FILE) {
        puts(" -F");
        return;
    }
    fputs(" -f -a '", stdout);
    if (arguments[c->arg].print) arguments[c->arg].print();
    puts("'");
}

static void print_fish(void) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    puts("# fish completion for plimsoll: plimsoll completion fish > "
         "~/.config/fish/completions/plimsoll.fish\n"
         "complete -c plimsoll -f");
    fish_flags(NULL, PL_FLAGS_SHARED);
    for (uint32_t i = 0; i < n; i++)
        fish_command(&commands[i]);
}

/* --------------------------------------------------------------------------------------------- */

int pl_cmd_completion(const struct pl_cli *cli) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(cli->args[0], shells[i].name) != 0) continue;
        shells[i].print();
        return 0;
    }
    struct pl_diag d = {0};
    pl_diag_set(&d, PL_ERR_USAGE, "no completion for the shell `%s`", cli->args[0]);
    pl_diag_hint(&d, "bash, zsh or fish");
    return pl_cli_fail(cli, &d);
}
