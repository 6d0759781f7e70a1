/* check_real.c - files as people have them, read by every command.
 *
 * tests/data/real/traits.tsv has a row for each trait that a file was met with:
 *
 *   trait  kind  path  command  exit  says  why
 *
 *   trait    the directory of its files below tests/data/real; it is copied before a command runs
 *   kind     what the path is, of `kinds` below
 *   path     the file or directory in the trait's directory; `.`: the directory
 *   command  a command of that kind, or `*`: every one
 *   exit     the exit status
 *   says     a part of what stdout and stderr say; `-`: nothing is asked; after `!`: a part that
 *            neither says
 *   why      where the trait comes from, and why this is right
 *
 * A command that ends by a signal, of want of memory or as a failure at run time fails every row.
 * PLIMSOLL names the binary; runs in the repository root. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REAL    "tests/data/real"
#define SECONDS 120.0

/* The commands that read each kind of file. $IT is the path of the row; $WORK holds base, a model
 * with weights and the tokenizer of 2,000 pieces, its adapter, chat.jsonl and job.yaml, a job that
 * trains that model on them by LoRA. */
static const struct command {
    const char *kind, *name, *line;
} commands[] = {
    {"tokenizer", "tokenize", "echo 'Hello, world 12' | $PLIMSOLL tokenize --tokenizer $IT --json"},
    {"tokenizer", "validate", "$PLIMSOLL validate job.yaml tokenizer=$IT"},
    {"tokenizer", "train", "$PLIMSOLL train job.yaml tokenizer=$IT --dry-run"},
    {"model", "estimate-vram", "$PLIMSOLL estimate-vram $IT --device cpu"},
    {"model", "plan", "$PLIMSOLL plan $IT --vram-gb 8"},
    {"model", "validate", "$PLIMSOLL validate ids.yaml model_config=$IT"},
    {"model", "train", "$PLIMSOLL train ids.yaml model_config=$IT --dry-run"},
    {"model", "generate",
     "$PLIMSOLL generate --model $IT --init random --prompt-ids 1,2 --max-new-tokens 2 --device "
     "cpu"},
    {"weights", "estimate-vram", "$PLIMSOLL estimate-vram $IT --device cpu"},
    {"weights", "train", "$PLIMSOLL train job.yaml model=$IT max_steps=1"},
    {"weights", "generate",
     "$PLIMSOLL generate --model $IT --prompt-ids 1,2 --max-new-tokens 2 --device cpu"},
    {"weights", "merge", "$PLIMSOLL merge --model $IT --adapter adapter --output merged"},
    {"weights", "verify", "$PLIMSOLL verify $IT"},
    {"adapter", "train", "$PLIMSOLL train job.yaml adapter_path=$IT max_steps=1"},
    {"adapter", "generate",
     "$PLIMSOLL generate --model base --adapter $IT --prompt-ids 1,2 --max-new-tokens 2 --device "
     "cpu"},
    {"adapter", "merge", "$PLIMSOLL merge --model base --adapter $IT --output merged"},
    {"adapter", "gguf", "$PLIMSOLL merge --model base --adapter $IT --gguf merged.gguf"},
    {"adapter", "verify", "$PLIMSOLL verify $IT"},
    {"rows", "tokenize", "$PLIMSOLL tokenize job.yaml datasets=$IT --show 9"},
    {"rows", "validate", "$PLIMSOLL validate job.yaml datasets=$IT"},
    {"rows", "train", "$PLIMSOLL train job.yaml datasets=$IT max_steps=2"},
    {"template", "tokenize",
     "$PLIMSOLL tokenize --tokenizer base --chat-template $IT --json <conversation.json"},
    {"template", "validate", "$PLIMSOLL validate job.yaml chat_template=$IT"},
    {"template", "train", "$PLIMSOLL train job.yaml chat_template=$IT max_steps=2"},
    {"job", "estimate-vram", "$PLIMSOLL estimate-vram $IT --device cpu"},
    {"job", "validate", "$PLIMSOLL validate $IT"},
    {"job", "train", "$PLIMSOLL train $IT --dry-run"},
    {"output", "train", "$PLIMSOLL train job.yaml output_dir=$IT max_steps=2"},
    {"output", "verify", "$PLIMSOLL verify $IT"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

struct row {
    int line, status;
    char *text; /* the others point into it */
    char *trait, *kind, *path, *command, *says;
};

#define MAX_ROWS 500
static struct row rows[MAX_ROWS];
static int n_rows;
static char work[SCRATCH_PATH];

/* Cuts the next field off *text; NULL after the last one. */
static char *next_field(char **text) {
    char *field = *text;
    if (!field) return NULL;
    char *tab = strchr(field, '\t');
    if (tab) *tab = 0;
    *text = tab ? tab + 1 : NULL;
    return field;
}

/* The rows are read before the tests begin, since their number is the number of tests. */
static bool read_rows(FILE *f) {
    static char line[4096];
    for (int number = 1; fgets(line, sizeof line, f); number++) {
        if (*line == '#') continue;
        struct row *r = &rows[n_rows];
        char *at = r->text = strdup(line);
        r->line = number;
        r->trait = next_field(&at), r->kind = next_field(&at), r->path = next_field(&at);
        r->command = next_field(&at);
        const char *status = next_field(&at);
        r->says = next_field(&at);
        if (!next_field(&at) || ++n_rows == MAX_ROWS) {
            fprintf(stderr, "traits.tsv:%d: 7 fields are expected, in %d rows\n", number, MAX_ROWS);
            return false;
        }
        r->status = atoi(status);
    }
    return n_rows > 0;
}

/* The base of every row and what a job needs. Made once: a test may not write it. */
static void make_work(void) {
    scratch_make(work);
    tiny_make(work, &(struct tiny){.vocab = 2100, .untied = true}, "max_steps: 1\n");
    plimsoll_train_expect(0, work, (const char *[]){"output_dir=base", NULL});
    plimsoll_train_expect(0, work, (const char *[]){"output_dir=adapter", "mode=lora", NULL});
    const char *tokenizer = "tests/data/tokenizer/qwen2_style";
    ck_assert_int_eq(system(textf("cp %s/tokenizer.json %s/tokenizer_config.json %s/base",
                                  tokenizer, tokenizer, work)),
                     0);
    file_write(in_dir(work, "ids.yaml"),
               "init: random\nmode: full\ndevice: cpu\nthreads: 1\nbatch_size: 1\n"
               "max_seq_length: 16\ndatasets: [{path: train.jsonl, format: tokens}]\n");
    file_write(in_dir(work, "job.yaml"),
               "model: base\nmode: lora\ndtype: fp32\ndevice: cpu\nthreads: 1\nbatch_size: 1\n"
               "max_seq_length: 256\nchat_template: chatml\ndatasets: [chat.jsonl]\n"
               "output_dir: out\ndataset_cache: \"off\"\n");
    file_write(in_dir(work, "conversation.json"),
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n");
    file_write(in_dir(work, "chat.jsonl"),
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"},"
               " {\"role\": \"assistant\", \"content\": \"Hello there.\"}]}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Yo\"},"
               " {\"role\": \"assistant\", \"content\": \"Good day.\"}]}\n");
}

static void remove_work(void) {
    scratch_remove(work);
}

static void run_command(const struct row *r, const struct command *c) {
    const char *it = in_dir(work, "it");
    scratch_remove(it);
    scratch_copy(in_dir(REAL, r->trait), it);
    ck_assert_int_eq(setenv("IT", textf("it/%s", r->path), 1), 0);
    struct outcome o = child_run((const char *[]){"sh", "-c", c->line, NULL}, work, SECONDS);
    scratch_remove(in_dir(work, "out"));
    scratch_remove(in_dir(work, "merged"));
    unlink(in_dir(work, "merged.gguf"));
    const char *where = textf("traits.tsv:%d: %s, %s", r->line, r->trait, c->name);
    ck_assert_msg(!o.timed_out && o.status != 1 && o.status < 7, "%s: exit %d\n%s%s", where,
                  o.status, o.out, o.err);
    ck_assert_msg(o.status == r->status, "%s: exit %d instead of %d\n%s%s", where, o.status,
                  r->status, o.out, o.err);
    bool unsaid = *r->says == '!';
    bool said = strstr(o.out, r->says + unsaid) || strstr(o.err, r->says + unsaid);
    ck_assert_msg(strcmp(r->says, "-") == 0 || said == !unsaid, "%s: `%s` is%s said\n%s%s", where,
                  r->says + unsaid, unsaid ? "" : " not", o.out, o.err);
    outcome_finish(&o);
}

START_TEST(a_file_with_a_trait_is_read_as_its_row_says) {
    const struct row *r = &rows[_i];
    int ran = 0;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct command *c = &commands[i];
        bool any = strcmp(r->command, "*") == 0;
        if (strcmp(c->kind, r->kind) != 0 || (!any && strcmp(c->name, r->command) != 0)) continue;
        run_command(r, c);
        ran++;
    }
    ck_assert_msg(ran > 0, "traits.tsv:%d: no command `%s` reads a `%s`", r->line, r->command,
                  r->kind);
}
END_TEST

static void visit_trait(const char *name, void *ctx) {
    (void)ctx;
    bool found = strchr(name, '.') != NULL; /* traits.tsv and its page */
    for (int i = 0; i < n_rows && !found; i++)
        found = strcmp(rows[i].trait, name) == 0;
    ck_assert_msg(found, REAL "/%s has no row in traits.tsv", name);
}

START_TEST(every_directory_has_a_row) {
    dir_each(REAL, visit_trait, NULL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("real");
    TCase *t = tcase_create("traits");
    tcase_set_timeout(t, 0);
    tcase_add_unchecked_fixture(t, make_work, remove_work);
    FILE *f = fopen(REAL "/traits.tsv", "r");
    if (!f || !read_rows(f)) return EXIT_FAILURE;
    fclose(f);
    tcase_add_loop_test(t, a_file_with_a_trait_is_read_as_its_row_says, 0, n_rows);
    tcase_add_test(t, every_directory_has_a_row);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    for (int i = 0; i < n_rows; i++)
        free(rows[i].text);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
