/* check_longest.c - what `plan --longest` says of every level is what `estimate-vram` says of the
 * command that it prints, and of the same command with one token more. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
    file_write(in_dir(dir, "job.yaml"), "model: SmolLM2-135M\nmode: lora\nbatch_size: 3\n"
                                        "gradient_checkpointing: none\nmax_seq_length: 100\n");
}

static void unmake(void) {
    scratch_remove(dir);
}

/* The words of a shell, with `plimsoll` the one under test. */
static struct outcome shell(const char *words) {
    const char *script = textf("PATH=$(dirname \"$PLIMSOLL\"):$PATH; %s", words);
    return child_run((const char *[]){"sh", "-c", script, NULL}, dir, HANG_SECONDS);
}

static json_t *answer_of(int status, const char *words) {
    struct outcome o = shell(words);
    ck_assert_msg(o.status == status, "%s: %d\n%s%s", words, o.status, o.out, o.err);
    json_t *root = json_loads(o.out, 0, NULL);
    ck_assert_msg(root != NULL, "%s: %s", words, o.out);
    outcome_finish(&o);
    return root;
}

static json_int_t whole(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    ck_assert_msg(json_is_integer(v), "no %s", key);
    return json_integer_value(v);
}

static const char *word(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    ck_assert_msg(s != NULL, "no %s", key);
    return s;
}

/* The command of a row with another length. */
static const char *with_tokens(const char *command, json_int_t tokens) {
    static const char key[] = "max_seq_length=";
    const char *at = strstr(command, key);
    ck_assert_msg(at != NULL, "%s", command);
    at += sizeof key - 1;
    return textf("%.*s%lld%s --json", (int)(at - command), command, (long long)tokens,
                 at + strspn(at, "0123456789"));
}

/* A job that is short of the margin alone is not refused. Host memory of the estimate, in addition
 * to what tensors take: copies pass through it. */
static json_int_t retype(const json_t *row, json_int_t tokens, const char *verdict,
                         json_int_t bytes) {
    json_t *o = answer_of(strcmp(verdict, "no") ? 0 : 3, with_tokens(word(row, "command"), tokens));
    ck_assert_str_eq(word(o, "verdict"), verdict);
    const json_t *of = json_object_get(o, "bytes");
    ck_assert_int_eq(whole(of, "total"), bytes);
    const json_int_t copies = whole(of, "host") - whole(row, "host_bytes");
    json_decref(o);
    return copies;
}

static const char *const jobs[] = {
    "SmolLM2-135M mode=lora --device cpu --vram 600MB vram_margin=0",
    "Llama-3.1-8B mode=qlora --gpu 'RTX 4090'",
    "job.yaml --vram 2GiB",
    "SmolLM2-135M mode=full gradient_accumulation_steps=4 --vram 4GiB",
    "SmolLM2-135M mode=lora loss_chunk_tokens=128 mlp_chunk_tokens=0 --vram 1500MiB",
};

/* L1 of longest.h, L2 of longest.h */
START_TEST(every_row_fits_as_it_is_typed_and_with_one_token_more_does_not) {
    json_t *root = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[_i])), *row;
    const json_t *longest = json_object_get(root, "longest");
    json_int_t copies = -1;
    size_t at;
    ck_assert_uint_eq(json_array_size(json_object_get(longest, "rows")), 7);
    json_array_foreach(json_object_get(longest, "rows"), at, row) {
        const json_int_t tokens = whole(row, "max_seq_length");
        if (!tokens) continue;
        ck_assert_int_le(whole(row, "needed_bytes"), whole(longest, "budget_bytes"));
        const json_int_t own = retype(row, tokens, "fits", whole(row, "needed_bytes"));
        ck_assert_msg(copies == -1 || own == copies, "%s: %lld bytes for copies",
                      word(row, "command"), (long long)own);
        copies = own;
        ck_assert_str_ne(word(row, "next_verdict"), "fits");
        retype(row, tokens + 1, word(row, "next_verdict"), whole(row, "next_bytes"));
    }
    json_decref(root);
}
END_TEST

/* L3 of longest.h */
START_TEST(the_answer_is_the_longest_row_and_auto_is_as_long_as_any_on_the_device) {
    json_t *root = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[_i])), *row;
    const json_t *longest = json_object_get(root, "longest");
    json_int_t automatic = 0, most = 0;
    double fastest = 0;
    size_t at;
    json_array_foreach(json_object_get(longest, "rows"), at, row) {
        const json_int_t tokens = whole(row, "max_seq_length");
        const double time = json_number_value(json_object_get(row, "relative_time"));
        ck_assert_int_le(tokens, whole(longest, "max_seq_length"));
        if (!strcmp(word(row, "gradient_checkpointing"), "auto")) automatic = tokens;
        if (strcmp(word(row, "gradient_checkpointing"), "offload") && tokens > most) most = tokens;
        if (tokens && (fastest == 0 || time < fastest)) fastest = time;
    }
    ck_assert_int_eq(automatic, most);
    ck_assert_double_eq(fastest, 1);
    ck_assert_str_eq(word(longest, "gradient_checkpointing"), "offload");
    json_decref(root);
}
END_TEST

START_TEST(the_text_says_what_the_json_does) {
    json_t *root = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[_i]));
    const json_t *longest = json_object_get(root, "longest");
    struct outcome o = shell(textf("plimsoll plan %s --longest", jobs[_i]));
    const char *proof = textf(
        "%lld tokens fit: %lld of %lld bytes; %lld do not: %lld",
        (long long)whole(longest, "max_seq_length"), (long long)whole(longest, "needed_bytes"),
        (long long)whole(longest, "budget_bytes"), (long long)whole(longest, "max_seq_length") + 1,
        (long long)whole(longest, "next_bytes"));
    int lines = 0;
    ck_assert_msg(strncmp(o.out, proof, strlen(proof)) == 0, "%s\n%s", proof, o.out);
    ck_assert_msg(strstr(o.out, word(longest, "command")) != NULL, "%s", o.out);
    for (const char *s = o.out; (s = strchr(s, '\n')); s++)
        lines++;
    ck_assert_int_eq(lines, 10);
    const bool beyond = json_is_true(json_object_get(longest, "beyond_max_positions"));
    ck_assert_msg(beyond == (strstr(o.err, "tokens go beyond the ") != NULL), "%s", o.err);
    ck_assert_int_eq(beyond, whole(longest, "max_seq_length") > whole(longest, "max_positions"));
    outcome_finish(&o);
    json_decref(root);
}
END_TEST

/* Chunks of the MLP make the length that fits longer, and are found at the wall. */
START_TEST(chunks_of_the_mlp_take_part_in_the_wall) {
    json_t *open = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[1]));
    json_t *fixed =
        answer_of(0, textf("plimsoll plan %s mlp_chunk_tokens=0 --longest --json", jobs[1]));
    const json_t *cut = json_object_get(open, "longest"), *all = json_object_get(fixed, "longest");
    ck_assert_int_gt(whole(cut, "mlp_chunk_tokens"), 0);
    ck_assert_int_eq(whole(all, "mlp_chunk_tokens"), 0);
    ck_assert_int_gt(whole(cut, "max_seq_length"), whole(all, "max_seq_length"));
    json_decref(open);
    json_decref(fixed);
}
END_TEST

START_TEST(the_batch_is_the_jobs_own) {
    json_t *one = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[0]));
    json_t *own = answer_of(0, textf("plimsoll plan %s --longest --json", jobs[2]));
    ck_assert_int_eq(whole(json_object_get(one, "longest"), "batch_size"), 1);
    ck_assert_int_eq(whole(json_object_get(own, "longest"), "batch_size"), 3);
    const char *command = word(json_object_get(one, "longest"), "command");
    ck_assert_msg(strstr(command, " batch_size=1 ") != NULL, "%s", command);
    json_decref(one);
    json_decref(own);
}
END_TEST

static const struct {
    const char *words;
    int status;
    const char *says;
} refused[] = {
    {"SmolLM2-135M mode=lora", 2, "hint: name it: --gpu NAME, or --vram SIZE"},
    {"SmolLM2-135M mode=lora --vram 2GiB --all", 2, "leave out --all"},
    {"SmolLM2-135M mode=lora --vram 2GiB --host-ram 1GiB", 2, "leave out --host-ram"},
    {"SmolLM2-135M mode=full --vram 2GiB devices=2", 2, "is about one device"},
    {"SmolLM2-135M mode=inference --vram 2GiB", 2, "estimate-vram MODEL --mode inference"},
    {"SmolLM2-135M mode=lora --vram 200MiB", 3, "without --longest"},
    {"SmolLM2-135M mode=full gradient_accumulation_steps=4 --vram 3GiB", 3, "fit for certain"},
    {"SmolLM2-135M mode=full --gpu 'P100 16GB'", 3, "7.5 (Turing) or later: no setting helps"},
    {"Llama-3.1-8B mode=full --gpu H200", 3, "the ceiling is 6"},
};

START_TEST(what_has_no_answer_is_refused_with_its_reason) {
    struct outcome o = shell(textf("plimsoll plan %s --longest", refused[_i].words));
    ck_assert_msg(o.status == refused[_i].status, "%d: %s%s", o.status, o.out, o.err);
    ck_assert_msg(strstr(o.err, refused[_i].says) != NULL, "%s", o.err);
    ck_assert_str_eq(o.out, "");
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.longest");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, every_row_fits_as_it_is_typed_and_with_one_token_more_does_not, 0,
                        COUNT(jobs));
    tcase_add_loop_test(t, the_answer_is_the_longest_row_and_auto_is_as_long_as_any_on_the_device,
                        0, COUNT(jobs));
    tcase_add_loop_test(t, the_text_says_what_the_json_does, 0, COUNT(jobs));
    tcase_add_test(t, chunks_of_the_mlp_take_part_in_the_wall);
    tcase_add_test(t, the_batch_is_the_jobs_own);
    tcase_add_loop_test(t, what_has_no_answer_is_refused_with_its_reason, 0, COUNT(refused));
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
