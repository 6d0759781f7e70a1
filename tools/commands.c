/* commands.c - the table of sub-commands: one row drives dispatch, help and completion. */
#include "tools/cli.h"

#include <string.h>

static const struct pl_command commands[] = {
    {
        .name = "help",
        .summary = "explain a command, a configuration key, or all keys",
        .synopsis = "[COMMAND | KEY | keys]",
        .examples = "plimsoll help estimate-vram\n"
                    "plimsoll help lora_r\n"
                    "plimsoll help keys\n",
        .text = "Without a word: the commands and the flags they share. `keys` prints the whole\n"
                "reference of configuration keys, the text of configs/REFERENCE.md.\n",
        .run = pl_cmd_help,
        .arg = PL_ARG_TOPIC,
        .max_args = 1,
    },
    {
        .name = "version",
        .summary = "version, compiler and back-ends of this binary",
        .synopsis = "",
        .examples = "plimsoll version\n"
                    "plimsoll version --json\n",
        .text = "",
        .run = pl_cmd_version,
    },
    {
        .name = "completion",
        .summary = "print a completion script for bash, zsh or fish",
        .synopsis = "bash | zsh | fish",
        .examples = "source <(plimsoll completion bash)\n"
                    "plimsoll completion zsh > \"${fpath[1]}/_plimsoll\"\n"
                    "plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish\n",
        .text = "The script knows the commands, flags, configuration keys and their choices of the\n"
                "binary that printed it.\n",
        .run = pl_cmd_completion,
        .arg = PL_ARG_SHELL,
        .min_args = 1,
        .max_args = 1,
    },
};

const struct pl_command *pl_cli_commands(uint32_t *n) {
    *n = sizeof commands / sizeof *commands;
    return commands;
}

const struct pl_command *pl_cli_command_find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}
