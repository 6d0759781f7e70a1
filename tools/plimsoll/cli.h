/* cli.h - the command line as data: commands, flags, the user's arguments, and the output of
 * failures.
 *
 * In: argv.  Out: struct pl_cli for one sub-command; text on stderr, answers on stdout.
 * Needs: estimator (diagnostics, the table of configuration keys), jansson.
 *   C1  help, manual pages, parsing, spelling hints and shell completion read the same two tables:
 *       the flags below and pl_cli_commands(); a flag or command exists in all places or in none
 *   C2  stdout carries only the answer, stderr everything else; with --json a failure is one JSON
 *       object on stdout in addition to the text on stderr
 *   C3  a configuration key given as a flag reaches the parser as the text "key=value": the command
 *       line knows no type or range of its own
 *   C4  the process exits with the status of the error table only
 * Use: struct pl_cli cli; struct pl_diag d = {0};
 *      if (pl_cli_parse(&cli, argc, argv, &d) == PL_ERR_OK) status = cli.command->run(&cli);
 *      else status = pl_cli_fail(&cli, &d); pl_cli_finish(&cli); */
#ifndef PL_TOOLS_PLIMSOLL_CLI_H
#define PL_TOOLS_PLIMSOLL_CLI_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/recipe.h"
#include "estimator/config/job.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The flags that are not configuration keys: those of every command come first. Names are written
 * with `_`; users may type `-` too.
 * X(id, name, short or 0, value, key, unit, help)
 *   value  "" for a switch, a placeholder such as "SIZE", or the choices: "auto|always|never"
 *   key    non-empty: the flag is another spelling of this configuration key, and the value,
 *          a plain number when `unit` is not empty, is passed on with `unit` appended */
#define PL_CLI_FLAGS(X)                                                                            \
    X(HELP, "help", 'h', "", "", "", "show help and stop")                                         \
    X(VERSION, "version", 'V', "", "", "", "show the version and stop")                            \
    X(QUIET, "quiet", 'q', "", "", "", "errors only")                                              \
    X(JSON, "json", 0, "", "", "", "answer in JSON on stdout, errors included")                    \
    X(COLOR, "color", 0, "auto|always|never", "", "", "colours on stderr; auto asks the terminal") \
    X(NO_PROGRESS, "no_progress", 0, "", "", "", "no progress line")                               \
    X(DRY_RUN, "dry_run", 0, "", "", "", "plan and judge, start nothing")                          \
    X(PROBE, "probe", 0, "", "", "", "steps on the longest samples, compare, train nothing")       \
    X(PROFILE, "profile", 0, "", "", "", "time every operation; a table of them at the end")       \
    X(PROGRAM, "program", 0, "", "", "", "one op a line, with offsets and live bytes")             \
    X(VRAM, "vram", 0, "SIZE", "vram_budget", "", "card size to compare with, such as 16GiB")      \
    X(VRAM_GB, "vram_gb", 0, "N", "vram_budget", "GB", "the same in GB of 10^9 bytes")             \
    X(RULE_OF_THUMB, "rule_of_thumb", 0, "", "", "", "closed formulas instead of a plan")          \
    X(TABLE, "table", 0,                                                                           \
      "precision|gradients|optimizer|lora|activations|inference|qlora|gpus|grid|accumulation|"     \
      "freezing|mistakes|checklist|tiers|samples",                                                 \
      "", "", "a table to plan by, without a model")                                               \
    X(PARAMS_BILLIONS, "params_billions", 0, "N", "", "", "rule of thumb: parameters / 10^9")      \
    X(WEIGHT_PRECISION, "weight_precision", 0, "fp32|fp16|bf16|int8|int4|nf4", "", "",             \
      "rule of thumb: precision of the weights")                                                   \
    X(INFERENCE, "inference", 0, "", "", "", "rule of thumb: weights and overhead alone")          \
    X(LORA, "lora", 0, "", "", "", "rule of thumb: train adapters on q and v")                     \
    X(NO_GRADIENT_CHECKPOINTING, "no_gradient_checkpointing", 0, "", "", "",                       \
      "rule of thumb: keep every activation")                                                      \
    X(SEQ_LENGTH, "seq_length", 0, "N", "max_seq_length", "", "the same as --max-seq-length")      \
    X(NUM_LAYERS, "num_layers", 0, "N", "", "", "rule of thumb: decoder layers")                   \
    X(HIDDEN_DIM, "hidden_dim", 0, "N", "", "", "rule of thumb: width of the model")               \
    X(TRAINED_LAYERS, "trained_layers", 0, "N", "", "", "table freezing: layers that are trained") \
    X(CHECKLIST, "checklist", 0, "", "", "", "answer the out-of-memory checklist for this job")    \
    X(GPU, "gpu", 0, "NAME", "", "", "plan for this GPU; `plimsoll cards` lists them")             \
    X(LINK, "link", 0, "nvlink|nvlink3|nvlink4|nvlink5|pcie3|pcie4|pcie5|100g|400g", "", "",       \
      "what several GPUs are connected by; default: what the GPU is built with")                   \
    X(EFFECTIVE_BATCH, "effective_batch", 0, "N", "", "", "samples a step should see")             \
    X(SAMPLES, "samples", 0, "N", "", "", "data without a file: how many samples")                 \
    X(MEAN_TOKENS, "mean_tokens", 0, "N", "", "", "data without a file: their average length")     \
    X(LONGEST_TOKENS, "longest_tokens", 0, "N", "", "", "data without a file: the longest")        \
    X(TOKENIZER, "tokenizer", 0, "PATH", "tokenizer", "", "a model directory, its file, or byte")  \
    X(CHAT_TEMPLATE, "chat_template", 0, "NAME", "chat_template", "", "how chats are rendered")    \
    X(CHAT_DATE, "chat_date", 0, "DAY", "chat_date", "", "day that templates show, 2025-01-31")    \
    X(NO_SPECIAL_TOKENS, "no_special_tokens", 0, "", "", "", "no special tokens around the text")  \
    X(SHOW, "show", 0, "N", "", "", "samples of the job to show; default 3")                       \
    X(CSV, "csv", 0, "", "", "", "the batch x length grid as CSV on stdout")                       \
    X(SVG, "svg", 0, "DIR", "", "", "write bill.svg, timeline.svg and grid.svg there")             \
    X(ALL, "all", 0, "", "", "", "every table after the recommendation")                           \
    X(LONGEST, "longest", 0, "", "", "",                                                           \
      "how long samples may be, for every level of recomputation")                                 \
    X(TABLES, "tables", 0, "NAME,...", "", "", "these tables instead of the recommendation")       \
    X(HOST_RAM, "host_ram", 0, "SIZE", "", "", "host memory that offload may take, as 128GiB")     \
    X(SNAPSHOT, "snapshot", 0, "FILE", "", "", "the planned step for pytorch.org/memory_viz")      \
    X(RECEIPT, "receipt", 0, "FILE", "", "", "write what was asked and planned there, as JSON")    \
    X(DIFF, "diff", 0, "OLD.json", "", "", "what grew since this receipt, by lines of the ledger") \
    X(ALLOW, "allow", 0, "SIZE", "", "", "growth that is no failure: 64MiB, or 2%; default 0")     \
    X(MODEL, "model", 0, "DIR", "", "", "the base model: a directory, or an id in the hub cache")  \
    X(ADAPTER, "adapter", 0, "DIR", "", "", "a PEFT adapter directory")                            \
    X(OUTPUT, "output", 'o', "PATH", "", "", "where to write: a new or empty directory, a file")   \
    X(FROM, "from", 0, PL_RECIPE_CHOICES, "", "",                                                  \
      "whose configuration it is; default: by its keys")                                           \
    X(DTYPE, "dtype", 0, "bf16|fp16|fp32", "", "",                                                 \
      "type to store; default: the type that each tensor has in the base")                         \
    X(GGUF, "gguf", 0, "FILE", "", "", "the adapter alone, as llama.cpp loads it")                 \
    X(MEMORY, "memory", 0, "SIZE", "", "", "take no more than this, such as 64MiB")                \
    X(SHARD_SIZE, "shard_size", 0, "SIZE", "", "", "largest weight file; 5GB unless given")        \
    X(PROMPT, "prompt", 0, "TEXT", "", "", "what to continue")                                     \
    X(CHAT, "chat", 0, "", "", "", "the prompt is the first message of a conversation")            \
    X(LINES, "lines", 0, "", "", "", "each line of standard input is a prompt of its own")         \
    X(PROMPT_IDS, "prompt_ids", 0, "N,N,...", "", "", "the prompt as token ids")                   \
    X(MAX_NEW_TOKENS, "max_new_tokens", 0, "N", "", "", "most tokens to generate; default 128")    \
    X(GREEDY, "greedy", 0, "", "", "", "the likeliest token each time; the default")               \
    X(TEMPERATURE, "temperature", 0, "T", "", "", "draw tokens from softmax(logits / T)")          \
    X(TOP_K, "top_k", 0, "N", "", "", "draw among the N likeliest tokens")                         \
    X(TOP_P, "top_p", 0, "P", "", "", "draw among the likeliest that hold P of the probability")   \
    X(MIN_P, "min_p", 0, "P", "", "", "draw among those with P of the likeliest's probability")    \
    X(REPETITION_PENALTY, "repetition_penalty", 0, "R", "", "",                                    \
      "divide the positive logits of tokens that occurred by R")                                   \
    X(IGNORE_EOS, "ignore_eos", 0, "", "", "", "continue after the model's end token")             \
    X(WATCH, "watch", 0, "", "", "", "write the page again while the runs live")                   \
    X(DATASET, "dataset", 0, "", "", "", "ID is a data set, not a model")                          \
    X(REVISION, "revision", 0, "R", "", "", "a branch, a tag or a commit; default: main")          \
    X(INCLUDE, "include", 0, "PATTERN", "", "", "the files to fetch; default: what a job needs")

enum pl_cli_flag {
#define X(id, name, letter, value, key, unit, help) PL_FLAG_##id,
    PL_CLI_FLAGS(X)
#undef X
        PL_FLAG_COUNT
};
/* The number of flags that every command takes; the others have a bit each. */
#define PL_FLAG_SHARED   (PL_FLAG_NO_PROGRESS + 1)
#define PL_FLAG_BIT(id)  (UINT64_C(1) << (PL_FLAG_##id - PL_FLAG_SHARED))
#define PL_FLAG_BITS_MAX 64

/* Some of the flags. */
struct pl_flag_set {
    bool shared;   /* those of every command */
    uint64_t bits; /* PL_FLAG_BIT()s */
};
#define PL_FLAGS_SHARED                                                                            \
    (struct pl_flag_set) {                                                                         \
        .shared = true                                                                             \
    }
#define PL_FLAGS_OWN(command)                                                                      \
    (struct pl_flag_set) {                                                                         \
        .bits = (command)->flags                                                                   \
    }
static inline bool pl_flag_in(struct pl_flag_set set, int flag) {
    return flag < PL_FLAG_SHARED ? set.shared : set.bits >> (flag - PL_FLAG_SHARED) & 1;
}

struct pl_flag_info {
    const char *name, *value, *key, *unit, *help;
    char letter;
};
const struct pl_flag_info *pl_cli_flags(void); /* [PL_FLAG_COUNT] */

/* The exit statuses of the process, besides 128 + the number of a signal. */
struct pl_cli_exit {
    const char *status, *meaning;
};
const struct pl_cli_exit *pl_cli_exits(size_t *n);
const char *pl_cli_summary(void); /* a description of the program in one line */

/* The meaning of a positional argument, for messages and completion. */
enum pl_cli_arg { PL_ARG_NONE, PL_ARG_FILE, PL_ARG_TOPIC, PL_ARG_SHELL, PL_ARG_HUB_ID };

struct pl_cli;
struct pl_command {
    const char *name;
    const char *summary;                  /* one line, no full stop */
    const char *synopsis;                 /* the text after the name */
    const char *examples;                 /* whole lines */
    const char *text;                     /* paragraphs */
    int (*run)(const struct pl_cli *cli); /* returns the exit status */
    enum pl_cli_arg arg;
    uint32_t min_args, max_args;
    uint64_t flags; /* PL_FLAG_BIT()s in addition to those of every command */
    bool keys;      /* configuration keys as flags and as key=value */
};
const struct pl_command *pl_cli_commands(uint32_t *n);
const struct pl_command *pl_cli_command_find(const char *name); /* NULL = unknown */

struct pl_cli {
    const struct pl_command *command; /* NULL: only with --help or --version */
    const char *flag[PL_FLAG_COUNT];  /* NULL = absent, "" = a switch, else the value; borrowed */
    const char **args;                /* positionals, borrowed strings */
    uint32_t n_args;
    const char **overrides; /* "key=value" for pl_job_read, in the order typed */
    uint32_t n_overrides;
    char **owned; /* memory of overrides and of paths */
    uint32_t n_owned;
    char *const *argv; /* borrowed; as it was parsed, ends with NULL */
};

/* PL_ERR_USAGE names the wrong word. *cli may be finished, and given to pl_cli_fail, in every case.
 * argv must outlive *cli. */
pl_err pl_cli_parse(struct pl_cli *cli, int argc, char *const argv[], struct pl_diag *d);
void pl_cli_finish(struct pl_cli *cli);
static inline bool pl_cli_has(const struct pl_cli *cli, enum pl_cli_flag f) {
    return cli->flag[f] != NULL;
}

#define PL_FLAG_NAME 64 /* longer words are cut; no flag or key is that long */
#define PL_FLAG_TEXT (PL_FLAG_NAME + 2)
/* Writes "--batch-size" for "batch_size", as help and messages show it. */
char *pl_cli_flag_text(const char *name, char buf[PL_FLAG_TEXT]);
/* Reads the number after a flag; *out is unchanged if the flag is absent. USAGE: it is not a number
 * from low to high. */
pl_err pl_cli_number(const struct pl_cli *cli, enum pl_cli_flag flag, double low, double high,
                     bool whole, double *out, struct pl_diag *d);
/* Splits "a|b|c" without copying: the next choice from *rest into *s and *n; false at the end. */
bool pl_cli_next_choice(const char **rest, const char **s, int *n);

/* The program: parses argv, runs the command, checks that stdout took everything; returns the exit
 * status. */
int pl_cli_main(int argc, char *argv[]);

/* --- output ---------------------------------------------------------------------------------- */
/* Returns the choice of --color; without it, or with auto, decided for `out`. */
bool pl_cli_colour(const struct pl_cli *cli, FILE *out);
/* Returns the columns of the terminal; 80 if there is none. */
unsigned pl_cli_columns(FILE *out);
/* Shows the failure on stderr (and stdout under --json), and those of d->all after it: under --json
 * as the list "errors", of which "error" is the first. Returns its exit status. */
int pl_cli_fail(const struct pl_cli *cli, const struct pl_diag *d);
/* pl_cli_fail for COMM_PEER_LOST of a rank: JSON has the failure of the other rank. If no step was
 * trained there is nothing to resume, and the failure is one plain line here, since the other rank
 * reports it. */
int pl_cli_fail_for_peer(const struct pl_cli *cli, const struct pl_diag *d, bool trained);
/* Shows a failure that another rank reports, in one line. */
int pl_cli_fail_in_short(const struct pl_cli *cli, const struct pl_diag *d, uint32_t rank);
/* Returns {"error": {...}} for a failure; NULL = no memory. */
json_t *pl_cli_failure_json(const struct pl_diag *d);
/* pl_cli_fail with `fields` next to "error" in the object; steals them. */
int pl_cli_fail_with(const struct pl_cli *cli, const struct pl_diag *d, json_t *fields);
/* Writes a warning to stderr; nothing under --quiet. */
void pl_cli_warn(const struct pl_cli *cli, const char *fmt, ...) PL_PRINTF(2, 3);
/* Writes every line of `notes` to stderr, marked as a note unless it begins with "warning: ";
 * nothing under --quiet. */
void pl_cli_print_notes(const struct pl_cli *cli, const struct pl_text *notes);
/* pl_text_add_safe for each line of `lines`. */
void pl_cli_add_safe_lines(struct pl_text *out, const struct pl_text *lines);
/* pl_text_add_safe to a stream at once. */
void pl_cli_put_safe(FILE *out, const char *s);
/* Writes a text whole or not at all; PL_ERR_HOST_OOM if it could not be built. Leaves *text empty.
 * pl_cli_print_text writes to stdout. */
pl_err pl_cli_put_text(struct pl_text *text, FILE *out, struct pl_diag *d);
pl_err pl_cli_print_text(struct pl_text *text, struct pl_diag *d);
/* Writes {"schema":1, ...fields} as one line to stdout; steals `fields` (NULL: building it failed).
 * A failed write is reported at the end of the process, once, as for every other answer. */
pl_err pl_cli_print_json(json_t *fields, struct pl_diag *d);
/* Writes ledger, verdict and remedies, coloured and fitted to `out`. */
struct pl_estimate;
pl_err pl_cli_print_estimate(const struct pl_cli *cli, const struct pl_estimate *e, FILE *out,
                             struct pl_diag *d);
/* Returns a JSON string of any bytes: those that are not UTF-8 become `?`. NULL = no memory. */
json_t *pl_cli_json_string(const char *s);

/* Writes a file whole or not at all; IO, also if the directory is missing. */
pl_err pl_cli_write_file(const char *path, const struct pl_text *text, struct pl_diag *d);

/* SIGINT, SIGTERM and, unless they are ignored, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU set the flag
 * that is returned to the number of the first of them. SIGINT or SIGTERM a second or more after the
 * first SIGINT or SIGTERM ends the process with 128 + number. SIGXFSZ is ignored. One process, one
 * flag. */
volatile sig_atomic_t *pl_cli_catch_signals(void);
/* Forgets the signal that was taken: a command that is not ended by it waits for the next one. */
void pl_cli_forget_signal(void);
/* Lets work outlive its reader: writing to a pipe that is not read becomes a failed
 * write. */
void pl_cli_outlive_readers(void);

/* --- commands, one file each ----------------------------------------------------------------- */
int pl_cmd_help(const struct pl_cli *cli);
int pl_cmd_version(const struct pl_cli *cli);
int pl_cmd_completion(const struct pl_cli *cli);
int pl_cmd_train(const struct pl_cli *cli);
int pl_cmd_validate(const struct pl_cli *cli);
int pl_cmd_estimate(const struct pl_cli *cli);
int pl_cmd_generate(const struct pl_cli *cli);
int pl_cmd_inspect(const struct pl_cli *cli);
int pl_cmd_plan(const struct pl_cli *cli);
int pl_cmd_tokenize(const struct pl_cli *cli);
int pl_cmd_merge(const struct pl_cli *cli);
int pl_cmd_report(const struct pl_cli *cli);
int pl_cmd_import(const struct pl_cli *cli);
int pl_cmd_verify(const struct pl_cli *cli);
int pl_cmd_cards(const struct pl_cli *cli);
int pl_cmd_models(const struct pl_cli *cli);
int pl_cmd_devices(const struct pl_cli *cli);
int pl_cmd_fetch(const struct pl_cli *cli);

#endif
