/* cmd_help.c - help, written from the tables that the parser reads. */
#include "estimator/config/key_reference.h"
#include "estimator/config/key_table.h"
#include "tools/plimsoll/cli.h"

#include <string.h>

#define HELP_COLUMN 34

static void indent_lines(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_flags(struct pl_flag_set set) {
    const struct pl_flag_info *flags = pl_cli_flags();
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        if (!pl_flag_in(set, i)) continue;
        char text[PL_FLAG_TEXT], letter[8] = "    ";
        if (flags[i].letter) snprintf(letter, sizeof letter, "-%c, ", flags[i].letter);
        int n = printf("  %s%s %s", letter, pl_cli_flag_text(flags[i].name, text), flags[i].value);
        if (n > HELP_COLUMN) { /* long choices take a line of their own */
            putchar('\n');
            n = 0;
        }
        printf("%*s %s\n", HELP_COLUMN - n, "", flags[i].help);
    }
}

static void print_overview(void) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    printf("plimsoll: %s\n\nUsage: plimsoll COMMAND [flags]\n\nExamples:\n", pl_cli_summary());
    for (uint32_t i = 0; i < n; i++)
        printf("  %.*s\n", (int)strcspn(commands[i].examples, "\n"), commands[i].examples);
    puts("\nCommands:");
    for (uint32_t i = 0; i < n; i++)
        printf("  %-16s %s\n", commands[i].name, commands[i].summary);
    puts("\nFlags of every command:");
    print_flags(PL_FLAGS_SHARED);
    size_t n_exits;
    const struct pl_cli_exit *exits = pl_cli_exits(&n_exits);
    puts("\nExit status:");
    for (size_t i = 0; i < n_exits; i++)
        printf("  %-10s %s\n", exits[i].status, exits[i].meaning);
    puts("\n`plimsoll help COMMAND` says more.");
}

static void print_command(const struct pl_command *c) {
    printf("plimsoll %s: %s\n\nExamples:\n", c->name, c->summary);
    indent_lines(c->examples);
    printf("\nUsage: plimsoll %s %s%s[flags]\n", c->name, c->synopsis, c->synopsis[0] ? " " : "");
    if (c->text[0]) printf("\n%s", c->text);
    if (c->keys)
        puts("\nEvery configuration key is a flag (--lora-r 8) and an assignment (lora_r=8) here;\n"
             "both win over the file. `plimsoll help keys` lists them.");
    if (c->flags) {
        printf("\nFlags of `%s`:\n", c->name);
        print_flags(PL_FLAGS_OWN(c));
    }
    puts("\nFlags of every command:");
    print_flags(PL_FLAGS_SHARED);
}

/* A row of what the reference says of a key, without the marks that Markdown needs. */
static void print_part(const char *label, struct pl_text *part) {
    if (part->len) printf("  %-8s ", label);
    for (const char *c = pl_text_str(part); *c; c++)
        if (*c != '`') putchar(*c);
    if (part->len) putchar('\n');
    pl_text_finish(part);
}

static bool print_key(const char *name) {
    uint32_t n;
    enum pl_key_id id = pl_key_find(name);
    if (id == PL_KEY_COUNT) return false;
    const struct pl_key_info *k = &pl_key_table(&n)[id];
    struct pl_text values = {0}, synonyms = {0};
    char text[PL_FLAG_TEXT];
    pl_key_write_values(id, &values);
    pl_key_write_synonyms(id, &synonyms);
    printf("%s: %s\n\n  type     %s\n", k->key, k->help, pl_key_type_label(id));
    print_part("values", &values);
    printf("  default  %s\n  flag     %s\n", k->def[0] ? k->def : "unset",
           pl_cli_flag_text(k->key, text));
    print_part("also", &synonyms);
    return true;
}

static int print_reference(const struct pl_cli *cli) {
    struct pl_text t = {0};
    struct pl_diag d = {0};
    int status = 0;
    pl_key_reference(&t);
    if (t.failed) {
        pl_host_oom(&d, "the key reference");
        status = pl_cli_fail(cli, &d);
    } else {
        fputs(pl_text_str(&t), stdout);
    }
    pl_text_finish(&t);
    return status;
}

static int unknown_topic(const struct pl_cli *cli, const char *topic) {
    const char *names[PL_KEY_COUNT + 32];
    size_t n_names = 0;
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    for (uint32_t i = 0; i < n && i < 32; i++)
        names[n_names++] = commands[i].name;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++)
        names[n_names++] = keys[i].key;

    struct pl_diag d = {0};
    pl_diag_set(&d, PL_ERR_USAGE, "`%s` is neither a command nor a configuration key", topic);
    const char *near = pl_text_nearest(topic, names, n_names);
    if (near) pl_diag_hint(&d, "did you mean `plimsoll help %s`?", near);
    return pl_cli_fail(cli, &d);
}

/* Serves `help TOPIC`, `COMMAND --help` and a bare --help. */
int pl_cmd_help(const struct pl_cli *cli) {
    bool asked_by_name = cli->command && cli->command->run == pl_cmd_help;
    if (cli->command && !asked_by_name) {
        print_command(cli->command);
        return 0;
    }
    if (cli->n_args == 0) {
        print_overview();
        return 0;
    }
    const char *topic = cli->args[0];
    const struct pl_command *c = pl_cli_command_find(topic);
    if (c) {
        print_command(c);
        return 0;
    }
    if (strcmp(topic, "keys") == 0) return print_reference(cli);
    return print_key(topic) ? 0 : unknown_topic(cli, topic);
}
