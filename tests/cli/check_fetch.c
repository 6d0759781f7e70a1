/* check_fetch.c - `plimsoll fetch` through the binary, with a program in place of `hf` that writes
 * into a hub cache or fails as the real one does. No connection is opened. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FAKE   "tests/cli/fake_hf.sh"
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static char dir[SCRATCH_PATH];

static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

/* PATH has a directory of the test's alone, so that no other `hf` is run. */
static void set_up(void) {
    static const char *const others[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"};
    scratch_make(dir);
    ck_assert_int_eq(mkdir(in_dir(dir, "bin"), 0700), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    set("HF_HOME", in_dir(dir, "home"));
    set("FAKE_WORDS", in_dir(dir, "words"));
    set("PATH", in_dir(dir, "bin"));
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void install_as(const char *name) {
    char *script = realpath(FAKE, NULL);
    ck_assert_ptr_nonnull(script);
    ck_assert_int_eq(symlink(script, in_dir(dir, textf("bin/%s", name))), 0);
    free(script);
}

static void install(const char *behaviour) {
    install_as("hf");
    set("FAKE_HF", behaviour);
}

static bool was_run_with(const char *line) {
    char *words = file_read(in_dir(dir, "words"), NULL);
    const bool found = strstr(words, line) != NULL;
    free(words);
    return found;
}

#define FETCH(...)  ((const char *[]){"fetch", __VA_ARGS__, NULL})
#define N(a)        ((int)(sizeof(a) / sizeof *(a)))
#define HAS(s, sub) ck_assert_msg(strstr((s), (sub)) != NULL, "no `%s` in: %s", (sub), (s))

/* --- what is fetched --- */

static const struct {
    const char *name, *id;
} models[] = {
    {"HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"},
    {"SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"},
    {"huggingfacetb/smollm2-135m", "HuggingFaceTB/SmolLM2-135M"},
    {"llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"},
    {"somebody/a_model.v1", "somebody/a_model.v1"},
};

/* HR2 of hf_run.h. */
START_TEST(a_model_is_fetched_by_id_or_by_name) {
    install("whole");
    struct outcome o = plimsoll_expect(0, dir, FETCH(models[_i].name));
    ck_assert_msg(was_run_with(textf("download\n%s\n--include=*.[jstm][aijosx]*\n"
                                     "--exclude=*.msgpack\n--exclude=*consolidated*\n",
                                     models[_i].id)),
                  "%s", models[_i].name);
    HAS(o.out, textf("%s: 3 files, 9 B, in\n", models[_i].id));
    HAS(o.out, "/snapshots/" COMMIT "\n");
    HAS(o.out, textf("next: plimsoll estimate-vram %s\n", models[_i].id));
    HAS(o.out, textf("plimsoll train job.yaml model=%s\n", models[_i].id));
    HAS(o.err, "\rFetching model.safetensors: 50%"); /* progress, and not on stdout */
    ck_assert_ptr_null(strstr(o.out, "Fetching"));
    if (strcmp(models[_i].name, models[_i].id) != 0) HAS(o.err, "is taken for");
    outcome_finish(&o);
}
END_TEST

START_TEST(what_was_fetched_is_found_by_the_name_it_was_fetched_by) {
    install("whole");
    struct outcome o = plimsoll_expect(0, dir, FETCH("SmolLM2-135M"));
    outcome_finish(&o);
    o = plimsoll_run(dir, (const char *[]){"estimate-vram", "SmolLM2-135M", NULL});
    HAS(o.err, COMMIT "/config.json"); /* the `{}` of the cache is read, not the catalogue */
    outcome_finish(&o);
}
END_TEST

/* HR1 of hf_run.h. */
START_TEST(options_are_words_of_their_own) {
    install("whole");
    struct outcome o = plimsoll_expect(
        0, dir,
        FETCH("me/mine", "--revision", "refs-pr-1", "--include", "*.json; rm -rf $HOME", "--json"));
    ck_assert(was_run_with("--revision=refs-pr-1\n--include=*.json; rm -rf $HOME\n"));
    ck_assert(!was_run_with("--exclude"));
    json_t *root = json_loads(o.out, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(root, "id")), "me/mine");
    ck_assert_str_eq(json_string_value(json_object_get(root, "kind")), "model");
    ck_assert_str_eq(json_string_value(json_object_get(root, "revision")), "refs-pr-1");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "files")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "bytes")), 9);
    HAS(json_string_value(json_object_get(root, "directory")), "models--me--mine/snapshots/");
    json_decref(root);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_data_set_is_fetched_whole) {
    install("rows");
    struct outcome o = plimsoll_expect(0, dir, FETCH("me/rows", "--dataset"));
    ck_assert(was_run_with("download\nme/rows\n--repo-type=dataset\n"));
    ck_assert(!was_run_with("--include"));
    HAS(o.out, "me/rows: 1 files, 3 B, in\n");
    HAS(o.out, textf("dataset=%s/home/hub/datasets--me--rows/snapshots/" COMMIT "\n", dir));
    outcome_finish(&o);
}
END_TEST

START_TEST(another_revision_is_named_by_its_directory) {
    install("whole");
    struct outcome o = plimsoll_expect(0, dir, FETCH("me/mine", "--revision", "v2"));
    HAS(o.out, textf("model=%s/home/hub/models--me--mine/snapshots/" COMMIT "\n", dir));
    outcome_finish(&o);
}
END_TEST

START_TEST(the_older_name_of_the_command_is_used_where_it_is_the_only_one) {
    install_as("huggingface-cli");
    set("FAKE_HF", "whole");
    struct outcome o = plimsoll_expect(0, dir, FETCH("me/mine", "--quiet"));
    ck_assert(was_run_with("download\nme/mine\n--quiet\n"));
    outcome_finish(&o);
}
END_TEST

START_TEST(a_process_that_is_left_behind_is_not_waited_for) {
    install("leaves");
    struct outcome o = plimsoll_expect(0, dir, FETCH("me/mine"));
    ck_assert_double_lt(o.seconds, 10);
    outcome_finish(&o);
}
END_TEST

/* --- what goes wrong --- */

static const struct {
    const char *behaviour;
    int status;
    const char *code, *says, *hint;
} failures[] = {
    {"gated", 5, "MODEL_FILE", "`hf` failed to fetch me/mine: it is gated", "`hf auth login`"},
    {"gated_old", 5, "MODEL_FILE", "it is gated", "accept its licence"},
    {"absent", 5, "MODEL_FILE", "shows no repository of that name", "check owner and name"},
    {"absent_old", 5, "MODEL_FILE", "shows no repository of that name", "check owner and name"},
    {"revision", 5, "MODEL_FILE", "it has no such revision", "a branch, a tag or a commit"},
    {"token", 5, "MODEL_FILE", "the hub refuses the token", "`hf auth login`"},
    {"network", 1, "RUNTIME_IO", "the hub cannot be reached", "the same command continues"},
    {"disk", 1, "RUNTIME_IO", "the disk is full", "free space"},
    {"old", 1, "RUNTIME_IO", "does not know these options", "pip install -U huggingface_hub"},
    {"strange", 1, "RUNTIME_IO", "failed to fetch me/mine: exit status 7", "is above"},
    {"killed", 1, "RUNTIME_IO", "ended by signal 9", "the same command continues"},
    {"long", 5, "MODEL_FILE", "shows no repository of that name", "check owner and name"},
    {"elsewhere", 1, "RUNTIME_IO", "`hf` reports no failure, and", "HF_HUB_CACHE"},
    {"no_config", 5, "MODEL_FILE", "has no config.json", "--include NAME.gguf"},
    {"no_weights", 5, "MODEL_WEIGHTS", "has no weights in safetensors", "save_pretrained"},
};

START_TEST(a_failure_of_the_command_is_one_error_with_what_mends_it) {
    install(failures[_i].behaviour);
    struct outcome o = plimsoll_expect(failures[_i].status, dir, FETCH("me/mine"));
    HAS(o.err, textf("error[%s]", failures[_i].code));
    HAS(o.err, failures[_i].says);
    HAS(strstr(o.err, "hint: "), failures[_i].hint);
    ck_assert_ptr_null(strstr(strstr(o.err, "error[") + 1, "error["));
    ck_assert_str_eq(o.out, "");
    outcome_finish(&o);
}
END_TEST

START_TEST(a_data_set_that_is_not_there_is_an_error_of_data) {
    install("absent");
    struct outcome o = plimsoll_expect(5, dir, FETCH("me/rows", "--dataset"));
    HAS(o.err, "error[DATA_FILE]");
    outcome_finish(&o);
}
END_TEST

START_TEST(without_the_command_nothing_happens_but_one_error) {
    struct outcome o = plimsoll_expect(1, dir, FETCH("SmolLM2-135M"));
    HAS(o.err, "error[RUNTIME_IO]: `hf`, the command of huggingface_hub, is not installed");
    HAS(o.err, "hint: pip install -U huggingface_hub\n");
    ck_assert(!path_exists(in_dir(dir, "home")));
    outcome_finish(&o);
}
END_TEST

static const struct {
    const char *words[4], *says;
} refused[] = {
    {{"no-such-model"}, "is no Hugging Face id"},
    {{"Qwen2.5-7B-Instuct"}, "did you mean Qwen2.5-7B-Instruct"},
    {{"./a/directory"}, "is no Hugging Face id"},
    {{"a/b/c"}, "is no Hugging Face id"},
    {{"a/../b"}, "is no Hugging Face id"},
    {{"../b"}, "is no Hugging Face id"},
    {{"a/-b"}, "is no Hugging Face id"},
    {{"a/b--c"}, "is no Hugging Face id"},
    {{"a/b c"}, "is no Hugging Face id"},
    {{"a/$(id)"}, "is no Hugging Face id"},
    {{"--", "-o/proxy"}, "is no Hugging Face id"},
    {{"--", "--token=x/y"}, "is no Hugging Face id"},
    {{"-x", "--dataset"}, "-x"},
    {{"a/b", "--revision", "../../etc"}, "--revision wants"},
    {{"a/b", "--revision", "-r"}, "--revision"},
    {{"a/b", "--include", ""}, "--include"},
};

START_TEST(a_name_that_is_no_id_reaches_no_other_program) {
    install("whole");
    const char *const *w = refused[_i].words;
    struct outcome o = plimsoll_expect(2, dir, FETCH(w[0], w[1], w[2], w[3]));
    HAS(o.err, refused[_i].says);
    ck_assert(!path_exists(in_dir(dir, "words")));
    outcome_finish(&o);
}
END_TEST

/* --- signals --- */

static void wait_for(const char *line) {
    const struct timespec pause = {.tv_nsec = 10000000};
    const double deadline = seconds_now() + HANG_SECONDS;
    while (!path_exists(in_dir(dir, "words")) || !was_run_with(line)) {
        ck_assert_double_lt(seconds_now(), deadline);
        nanosleep(&pause, NULL);
    }
}

static const int stops[] = {SIGINT, SIGTERM};

/* HR3 of hf_run.h. */
START_TEST(a_signal_is_passed_on_and_the_end_waited_for) {
    install("waits");
    struct child c = plimsoll_start(dir, FETCH("me/mine"), false);
    wait_for("waiting\n");
    ck_assert_int_eq(kill(c.pid, stops[_i]), 0);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert(!o.timed_out);
    ck_assert_int_eq(o.status, 128 + stops[_i]);
    ck_assert(was_run_with("stopped\n"));
    HAS(o.err, "error[RUNTIME_INTERRUPTED]: fetching me/mine was interrupted");
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.fetch");
    TCase *t = tcase_create("fetch");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_model_is_fetched_by_id_or_by_name, 0, N(models));
    tcase_add_test(t, what_was_fetched_is_found_by_the_name_it_was_fetched_by);
    tcase_add_test(t, options_are_words_of_their_own);
    tcase_add_test(t, a_data_set_is_fetched_whole);
    tcase_add_test(t, another_revision_is_named_by_its_directory);
    tcase_add_test(t, the_older_name_of_the_command_is_used_where_it_is_the_only_one);
    tcase_add_test(t, a_process_that_is_left_behind_is_not_waited_for);
    tcase_add_loop_test(t, a_failure_of_the_command_is_one_error_with_what_mends_it, 0,
                        N(failures));
    tcase_add_test(t, a_data_set_that_is_not_there_is_an_error_of_data);
    tcase_add_test(t, without_the_command_nothing_happens_but_one_error);
    tcase_add_loop_test(t, a_name_that_is_no_id_reaches_no_other_program, 0, N(refused));
    tcase_add_loop_test(t, a_signal_is_passed_on_and_the_end_waited_for, 0, N(stops));
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
