/* check_not_files.c - a FIFO, a directory or a device where a file is read: refused by its name,
 * and nobody waits for it. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

/* A trained model with a tokenizer in `model`, an adapter of it in `adapter`, a job in run.yaml
 * that goes on from the model. */
static void set_up(void) {
    scratch_make(dir);
    setenv("HF_HUB_CACHE", in_dir(dir, "hub"), 1);
    tiny_make(dir, &(struct tiny){.vocab = 1024}, "max_steps: 1\n");
    plimsoll_train_expect(0, dir, (const char *[]){"output_dir=model", "--quiet", NULL});
    plimsoll_train_expect(0, dir,
                          (const char *[]){"output_dir=adapter", "mode=lora", "--quiet", NULL});
    scratch_copy(TOKENIZERS "/qwen2_style", in_dir(dir, "tok"));
    ck_assert_int_eq(mkdir(in_dir(dir, "hub"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "hub/models--some--thing"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "hub/models--some--thing/refs"), 0777), 0);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define GO_ON      "train", "run.yaml", "init=pretrained", "model=model", "model_config=null"
#define GENERATE   "generate", "--model", "model", "--prompt-ids", "1,2", "--max-new-tokens", "1"
#define TOKENIZE   "tokenize", "--json", "--tokenizer"
#define MOST_WORDS 12

static const struct {
    const char *path;
    int status;
    const char *code;
    const char *words[MOST_WORDS];
} rows[] = {
    {"run.yaml", 2, "CONFIG_FILE", {"validate", "run.yaml"}},
    {"config.json", 5, "MODEL_FILE", {"validate", "run.yaml"}},
    {"config.json", 5, "MODEL_FILE", {"estimate-vram", "config.json"}},
    {"train.jsonl", 5, "DATA_FILE", {"validate", "run.yaml"}},
    {"tok/tokenizer.json", 5, "TOKENIZER_FILE", {TOKENIZE, "tok"}},
    {"tok/tokenizer.json", 5, "TOKENIZER_FILE", {TOKENIZE, "tok/tokenizer.json"}},
    {"tok/tokenizer_config.json", 5, "TOKENIZER_FILE", {TOKENIZE, "tok"}},
    {"tok/chat_template.jinja", 5, "TOKENIZER_FILE", {TOKENIZE, "tok"}},
    {"model/config.json", 5, "MODEL_FILE", {GENERATE}},
    {"model/model.safetensors", 5, "CHECKPOINT_FILE", {GENERATE}},
    {"model/model.safetensors", 5, "CHECKPOINT_FILE", {GO_ON}},
    {"model/generation_config.json", 5, "CHECKPOINT_FILE", {GO_ON, "output_dir=again"}},
    {"adapter/adapter_config.json", 5, "CHECKPOINT_FILE", {GENERATE, "--adapter", "adapter"}},
    {"adapter/adapter_model.safetensors", 5, "CHECKPOINT_FILE", {GENERATE, "--adapter", "adapter"}},
    {"hub/models--some--thing/refs/main", 2, "CONFIG_USAGE", {"estimate-vram", "some/thing"}},
};

static void make_fifo(const char *path) {
    ck_assert_int_eq(mkfifo(path, 0666), 0);
}
static void make_directory(const char *path) {
    ck_assert_int_eq(mkdir(path, 0777), 0);
}
static void make_device(const char *path) {
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
}

static void (*const kinds[])(const char *) = {make_fifo, make_directory, make_device};
#define N_KINDS (int)(sizeof kinds / sizeof *kinds)

START_TEST(what_is_no_file_is_refused_by_its_name) {
    const char *path = in_dir(dir, rows[_i / N_KINDS].path);
    const char *argv[MOST_WORDS + 1] = {getenv("PLIMSOLL")};
    memcpy(argv + 1, rows[_i / N_KINDS].words, sizeof rows->words);
    ck_assert(unlink(path) == 0 || errno == ENOENT);
    kinds[_i % N_KINDS](path);
    struct outcome o = child_run(argv, dir, HANG_SECONDS);
    ck_assert_msg(!o.timed_out, "%s: waits", rows[_i / N_KINDS].path);
    ck_assert_msg(o.status == rows[_i / N_KINDS].status, "%s: %d: %s", rows[_i / N_KINDS].path,
                  o.status, o.err);
    ck_assert_msg(strstr(o.err, textf("error[%s]", rows[_i / N_KINDS].code)), "%s", o.err);
    ck_assert_msg(strstr(o.err, strrchr(path, '/') + 1), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

static const char *const streams[] = {
    "cat run.yaml | \"$0\" validate -",
    "\"$0\" validate - <run.yaml",
    "\"$0\" validate /dev/stdin <run.yaml",
    "\"$0\" validate /dev/fd/3 3<run.yaml",
};

START_TEST(a_configuration_comes_through_a_stream_that_is_open) {
    const char *argv[] = {"sh", "-c", streams[_i], getenv("PLIMSOLL"), NULL};
    struct outcome o = child_run(argv, dir, HANG_SECONDS);
    ck_assert_msg(!o.timed_out && o.status == 0, "%s: %d: %s", streams[_i], o.status, o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("not_files");
    TCase *c = tcase_create("not_files");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, what_is_no_file_is_refused_by_its_name, 0,
                        N_KINDS * (int)(sizeof rows / sizeof *rows));
    tcase_add_loop_test(c, a_configuration_comes_through_a_stream_that_is_open, 0,
                        sizeof streams / sizeof *streams);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
