/* check_companions.c - what goes with a saved model: `generate --chat` sees the template and the
 * tokenizer that training saw. PLIMSOLL names the binary; runs in the repository root. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tests/data/tokenizer/qwen2_style/tokenizer.json"
#define OWN       "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
#define OLD       "{% for m in messages %}{{ m.content }} old\n{% endfor %}"

static char dir[SCRATCH_PATH];

/* base: a model with a tokenizer and a template; job.yaml trains it on a conversation. */
static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.vocab = 2100, .untied = true}, "max_steps: 1\n");
    plimsoll_train_expect(0, dir, (const char *[]){"output_dir=base", NULL});
    char *tokenizer = file_read(TOKENIZER, NULL);
    file_write(in_dir(dir, "base/tokenizer.json"), tokenizer);
    free(tokenizer);
    file_write(in_dir(dir, "base/chat_template.jinja"), OLD);
    file_write(in_dir(dir, "own.jinja"), OWN);
    file_write(in_dir(dir, "chat.jsonl"),
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"},"
               " {\"role\": \"assistant\", \"content\": \"Hello there.\"}]}\n");
    file_write(in_dir(dir, "job.yaml"),
               "model: base\nmode: full\ndtype: fp32\ndevice: cpu\nthreads: 1\nbatch_size: 1\n"
               "max_seq_length: 64\ndatasets: [chat.jsonl]\noutput_dir: out\nmax_steps: 1\n"
               "save_steps: 1\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void train(const char *const words[]) {
    const char *argv[8] = {"train", "job.yaml"};
    for (size_t i = 0; words[i]; i++)
        argv[2 + i] = words[i];
    struct outcome o = plimsoll_expect(0, dir, argv);
    outcome_finish(&o);
}

static void expect_text(const char *path, const char *want) {
    char *text = file_read(in_dir(dir, path), NULL);
    ck_assert_msg(strstr(text, want) != NULL, "%s: no `%s` in\n%s", path, want, text);
    free(text);
}

/* The ids of the prompt of a conversation; the caller frees. */
static char *prompt_of(const char *const words[]) {
    const char *argv[16] = {"generate", "--chat",           "--prompt", "Hi",
                            "--json",   "--device",         "cpu",      "--dtype",
                            "fp32",     "--max-new-tokens", "1"};
    for (size_t i = 0; words[i]; i++)
        argv[11 + i] = words[i];
    struct outcome o = plimsoll_expect(0, dir, argv);
    const char *tokens = strstr(o.out, "\"prompt_tokens\"");
    ck_assert_msg(tokens != NULL, "%s", o.out);
    char *copy = strndup(tokens, strcspn(tokens, ",}"));
    outcome_finish(&o);
    return copy;
}

static void expect_same_prompt(const char *const as_saved[], const char *const as_named[]) {
    char *a = prompt_of(as_saved), *b = prompt_of(as_named);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
}

/* N1 of companions.h: the template that the run was trained with stands in place of the model's
 * own. */
START_TEST(a_template_of_a_file_is_saved_with_the_model) {
    train((const char *[]){"chat_template=own.jinja", NULL});
    expect_text("out/chat_template.jinja", OWN);
    expect_text("out/checkpoint-1/chat_template.jinja", OWN);
    expect_same_prompt((const char *[]){"--model", "out", NULL},
                       (const char *[]){"--model", "out", "--chat-template", "own.jinja", NULL});
}
END_TEST

START_TEST(a_named_template_is_saved_as_its_program) {
    train((const char *[]){"chat_template=chatml", NULL});
    expect_text("out/chat_template.jinja", "<|im_start|>");
    expect_same_prompt((const char *[]){"--model", "out", NULL},
                       (const char *[]){"--model", "out", "--chat-template", "chatml", NULL});
}
END_TEST

START_TEST(the_models_own_template_stays) {
    train((const char *[]){NULL});
    expect_text("out/chat_template.jinja", " old");
}
END_TEST

START_TEST(an_adapter_brings_its_template_to_generate_and_merge) {
    train((const char *[]){"chat_template=own.jinja", "mode=lora", NULL});
    expect_text("out/chat_template.jinja", OWN);
    ck_assert(!path_exists(in_dir(dir, "out/tokenizer.json")));
    expect_same_prompt((const char *[]){"--model", "base", "--adapter", "out", NULL},
                       (const char *[]){"--model", "base", "--chat-template", "own.jinja", NULL});
    struct outcome o = plimsoll_expect(0, dir,
                                       (const char *[]){"merge", "--model", "base", "--adapter",
                                                        "out", "--output", "merged", NULL});
    outcome_finish(&o);
    expect_text("merged/chat_template.jinja", OWN);
    ck_assert(path_exists(in_dir(dir, "merged/tokenizer.json")));
}
END_TEST

START_TEST(several_templates_are_saved_together) {
    struct outcome o =
        child_run((const char *[]){"sh", "-c",
                                   "mkdir base/chat_templates && echo '{{ tools }}' "
                                   ">base/chat_templates/tool_use.jinja && mkdir out && echo x "
                                   ">out/chat_template.jinja",
                                   NULL},
                  dir, 10);
    ck_assert_int_eq(o.status, 0);
    outcome_finish(&o);
    train((const char *[]){"overwrite_output_dir=true", NULL});
    ck_assert(!path_exists(in_dir(dir, "out/chat_template.jinja")));
    expect_text("out/tokenizer_config.json", "tool_use");
    expect_text("out/tokenizer_config.json", " old");
    expect_same_prompt((const char *[]){"--model", "out", NULL},
                       (const char *[]){"--model", "base", NULL});
}
END_TEST

int main(void) {
    Suite *s = suite_create("companions");
    TCase *t = tcase_create("companions");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_template_of_a_file_is_saved_with_the_model);
    tcase_add_test(t, a_named_template_is_saved_as_its_program);
    tcase_add_test(t, the_models_own_template_stays);
    tcase_add_test(t, an_adapter_brings_its_template_to_generate_and_merge);
    tcase_add_test(t, several_templates_are_saved_together);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
