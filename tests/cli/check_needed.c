/* check_needed.c - where nothing fits, every command of `what would do` is one that does; and the
 * numbers of the refusal are those of the question. */
#include "estimator/base/units.h"
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
    file_write(in_dir(dir, "job.yaml"), "model: SmolLM2-135M\nmode: lora\nvram_budget: 40MiB\n");
    file_write(in_dir(dir, "margin.yaml"), "model: SmolLM2-135M\nmode: full\nvram_budget: 200MiB\n"
                                           "vram_margin: 100MiB\n");
}

static void unmake(void) {
    scratch_remove(dir);
}

/* The words of a shell, with `plimsoll` the one under test. */
static struct outcome shell(const char *words) {
    const char *script = textf("plimsoll() { \"$PLIMSOLL\" \"$@\"; }; %s", words);
    return child_run((const char *[]){"sh", "-c", script, NULL}, dir, HANG_SECONDS);
}

static const struct {
    const char *words; /* after `plimsoll plan` */
    const char *whats[4];
    const char *most; /* no more than this can be had; "": not asked */
} refused[] = {
    {"SmolLM2-135M mode=lora --vram 60MiB", {"RTX "}, "60MiB"},
    {"SmolLM2-135M mode=full --vram 300MiB", {"RTX "}, "300MiB"},
    {"SmolLM2-135M mode=full --vram 1MiB", {"RTX "}, "1MiB"},
    {"SmolLM2-135M mode=lora --gpu 'RTX 4090' vram_budget=200MiB", {"RTX "}, "200MiB"},
    {"SmolLM2-1.7B mode=lora max_seq_length=1048576 --gpu 'RTX 3060'",
     {"shorter samples", "A100 80GB"}, /* with the MLP in chunks */
     "12GiB"},
    {"Llama-3.1-70B mode=full max_seq_length=4000000 --gpu H200",
     {"shorter samples", "so much memory"},
     "141GiB"},
    {"Llama-3.1-8B mode=full --gpu 'V100 16GB'", {"H"}, ""},
    /* on another GPU `dtype: auto` is bf16 again */
    {"Llama-3.1-8B mode=full --gpu T4 --host-ram 12GiB",
     {"adapters", "65.90 GiB of host memory", "A100 80GB"},
     "16GiB"},
    {"job.yaml --gpu 'RTX 4090'", {"RTX "}, "40MiB"},
    {"margin.yaml", {"adapters", "RTX "}, "200MiB"},
};

/* The memory that "can be had", of the first line; 0 where it names none. */
static uint64_t had(const char *line) {
    char size[64] = "";
    const char *end = strstr(line, " can be had"), *at = end;
    uint64_t bytes = 0;
    if (!end) return 0;
    while (strncmp(at, "and ", 4) != 0)
        at--;
    snprintf(size, sizeof size, "%.*s", (int)(end - at - 4), at + 4);
    ck_assert_msg(pl_bytes_parse(size, &bytes), "%s", size);
    return bytes;
}

START_TEST(what_would_do_does) {
    struct outcome o = shell(textf("plimsoll plan %s", refused[_i].words));
    const char *begin = strstr(o.out, "what would do:\n");
    int n = 0;
    uint64_t most;
    ck_assert_msg(begin != NULL, "%s%s", o.out, o.err);
    if (refused[_i].most[0]) {
        ck_assert(pl_bytes_parse(refused[_i].most, &most));
        ck_assert_msg(had(o.out) <= most, "%s", o.out);
        ck_assert_int_eq(strncmp(o.out, "nothing fits ", 13), 0);
    }
    for (char *line = strtok(strstr(o.out, "what would do:") + 15, "\n"); line && line[0] != '#';
         line = strtok(NULL, "\n"), n++) {
        ck_assert_msg(refused[_i].whats[n] != NULL, "%s", line);
        ck_assert_msg(strncmp(line + 2, refused[_i].whats[n], strlen(refused[_i].whats[n])) == 0,
                      "%s", line);
        const char *command = strtok(NULL, "\n");
        ck_assert_msg(strncmp(command, "    plimsoll plan ", 18) == 0, "%s", command);
        struct outcome again = shell(command + 4);
        ck_assert_msg(again.status == 0 && strstr(again.out, "recommended ") == again.out,
                      "%s\n  exits with %d: %s%s", command, again.status, again.out, again.err);
        outcome_finish(&again);
    }
    ck_assert_msg(n > 0 && !refused[_i].whats[n], "%d ways", n);
    outcome_finish(&o);
}
END_TEST

/* The largest memory of which nothing fits and the smallest that is enough are neighbours: what is
 * refused at one size is answered at the size that it is said to need. */
START_TEST(the_bytes_that_are_needed_are_enough) {
    static const char *const jobs[] = {"SmolLM2-135M mode=lora device=cpu",
                                       "SmolLM2-135M mode=full",
                                       "SmolLM2-360M mode=qlora max_seq_length=512"};
    struct outcome o = shell(textf("plimsoll plan %s vram_budget=20MiB", jobs[_i]));
    const char *at = strstr(o.out, " needs ");
    char size[64] = "";
    uint64_t bytes;
    ck_assert_msg(at != NULL, "%s%s", o.out, o.err);
    snprintf(size, sizeof size, "%.*s", (int)strcspn(at + 7, ","), at + 7);
    ck_assert_msg(pl_bytes_parse(size, &bytes), "%s", size);
    outcome_finish(&o);
    /* the doubt about the context is kept free, so the least budget is a little larger */
    o = shell(textf("plimsoll plan %s vram_budget=%llu", jobs[_i],
                    (unsigned long long)(bytes - bytes / 50)));
    ck_assert_msg(strncmp(o.out, "nothing fits", 12) == 0, "%s", o.out);
    outcome_finish(&o);
    o = shell(textf("plimsoll plan %s vram_budget=%llu", jobs[_i],
                    (unsigned long long)(bytes + bytes / 50 + ((uint64_t)280 << 20))));
    ck_assert_msg(strncmp(o.out, "recommended ", 12) == 0, "%s", o.out);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.needed");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, what_would_do_does, 0, COUNT(refused));
    tcase_add_loop_test(t, the_bytes_that_are_needed_are_enough, 0, 3);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
