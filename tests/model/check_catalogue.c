/* check_catalogue.c - the built-in models say what the published config.json files say; names lead
 * where they should, through directories, the hub cache and the catalogue. */
#include "estimator/config/job_text.h"
#include "estimator/find/find.h"
#include "estimator/model/catalogue.h"
#include "estimator/model/model.h"
#include "estimator/model/resolve.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_MODELS 99
#define N_IDS    334

static const struct pl_known_model *known(int i) {
    size_t n;
    const struct pl_known_model *table = pl_catalogue_table(&n);
    ck_assert_uint_eq(n, N_MODELS);
    return &table[i];
}

static pl_err read_known(const struct pl_known_model *k, struct pl_model *out, struct pl_diag *d) {
    char *text;
    PL_TRY(pl_catalogue_config(k, &text, d));
    pl_err err = pl_model_parse(k->name, text, strlen(text), out, d);
    free(text);
    return err;
}

struct counts {
    uint64_t params, linear;
};

/* The line of params.csv; zeros where there is none. */
static struct counts published_counts(const char *name) {
    struct counts c = {0};
    char line[256];
    FILE *f = fopen(CONFIGS "/params.csv", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ',')
            ck_assert_int_eq(
                sscanf(line + strlen(name), ",%" SCNu64 ",%*d,%" SCNu64, &c.params, &c.linear), 2);
    fclose(f);
    return c;
}

/* C1 */
START_TEST(a_row_reads_as_the_published_file_does) {
    static struct pl_model built_in, published; /* zeroed: padding compares too */
    struct pl_diag d = {0};
    const struct pl_known_model *k = known(_i);
    const char *path = textf("%s/%s/config.json", CONFIGS, k->name);
    if (k->like && !published_counts(k->name).params) return; /* has the sizes of that row */
    ck_assert_msg(read_known(k, &built_in, &d) == PL_ERR_OK, "%s: %s", k->name, d.message);
    ck_assert_msg(pl_model_read(path, &published, &d) == PL_ERR_OK, "%s: %s", path, d.message);
    ck_assert_mem_eq(&built_in, &published, sizeof published);
}
END_TEST

/* A row without a line has the sizes of the row that it is like. */
START_TEST(a_row_has_the_exact_counts) {
    static struct pl_model m;
    const struct pl_known_model *k = known(_i), *sized = k;
    struct counts c = published_counts(k->name);
    while (!c.params && sized->like) {
        sized = pl_catalogue_find(sized->like, NULL);
        c = published_counts(sized->name);
    }
    ck_assert_int_eq(read_known(k, &m, NULL), PL_ERR_OK);
    ck_assert_uint_gt(c.params, 0);
    ck_assert_msg(pl_model_param_count(&m) == c.params, "%s", k->name);
    ck_assert_msg(pl_model_linear_params(&m) == c.linear, "%s", k->name);
}
END_TEST

START_TEST(a_row_like_another_one_differs_from_it_and_stands_behind_it) {
    static struct pl_model own, whole; /* zeroed: padding compares too */
    const struct pl_known_model *k = known(_i);
    if (!k->like) return;
    const struct pl_known_model *like = pl_catalogue_find(k->like, NULL);
    ck_assert_ptr_nonnull(like);
    ck_assert_msg(like < k && strcmp(like->name, k->like) == 0, "%s", k->name);
    ck_assert_int_eq(read_known(k, &own, NULL), PL_ERR_OK);
    ck_assert_int_eq(read_known(like, &whole, NULL), PL_ERR_OK);
    ck_assert_msg(memcmp(&own, &whole, sizeof own) != 0, "%s", k->name);
}
END_TEST

START_TEST(every_name_and_id_leads_to_its_own_row) {
    const struct pl_known_model *k = known(_i);
    char id[PL_KNOWN_ID];
    struct pl_known_as as;
    ck_assert_ptr_eq(pl_catalogue_find(k->name, NULL), k);
    ck_assert_ptr_nonnull(k->ids[0]);
    for (size_t i = 0; pl_catalogue_id(k, i, id); i++) {
        ck_assert_msg(strchr(id, '/') && strchr(id, '/')[1], "%s", id);
        ck_assert_ptr_eq(pl_catalogue_find(id, &as), k);
        ck_assert_str_eq(as.id, id);
        ck_assert(!as.guessed);
        ck_assert_ptr_eq(pl_catalogue_find(strchr(id, '/') + 1, &as), k);
        ck_assert(!as.guessed);
    }
}
END_TEST

START_TEST(the_table_knows_as_many_ids_as_it_is_said_to) {
    char id[PL_KNOWN_ID];
    size_t n = 0;
    for (int i = 0; i < N_MODELS; i++)
        for (size_t j = 0; pl_catalogue_id(known(i), j, id); j++)
            n++;
    ck_assert_uint_eq(n, N_IDS);
}
END_TEST

/* Writes the name with every separator as `separator`, without any that stands before a digit. */
static const char *respelt(const char *name, char separator) {
    static char out[PL_KNOWN_ID];
    size_t n = 0;
    for (const char *s = name; *s; s++) {
        const bool is_separator = strchr("-_.", *s) != NULL;
        const bool may_go =
            n > 0 && isalpha((unsigned char)out[n - 1]) && isdigit((unsigned char)s[is_separator]);
        if (is_separator && may_go) continue;
        out[n++] = is_separator ? separator : (char)toupper((unsigned char)*s);
    }
    out[n] = 0;
    return out;
}

/* C3: No two rows share a spelling, so that no name is taken for another model's. */
START_TEST(every_id_is_found_however_its_words_are_separated) {
    const struct pl_known_model *k = known(_i);
    char id[PL_KNOWN_ID];
    struct pl_known_as as;
    ck_assert_ptr_eq(pl_catalogue_find(respelt(k->name, '_'), NULL), k);
    for (size_t i = 0; pl_catalogue_id(k, i, id); i++) {
        ck_assert_ptr_eq(pl_catalogue_find(respelt(id, '_'), &as), k);
        ck_assert_str_eq(as.id, id);
        ck_assert_ptr_eq(pl_catalogue_find(respelt(strchr(id, '/') + 1, '.'), NULL), k);
    }
}
END_TEST

static const struct {
    const char *name, *row;
} names[] = {
    {"Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct"},
    {"qwen2.5-7b-instruct", "Qwen2.5-7B-Instruct"},
    {"unsloth/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"},
    {"unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "Llama-3.1-8B-bnb-4bit"},
    {"NousResearch/Llama-3.2-1B", "Llama-3.2-1B"},
    {"Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B-2507"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "DeepSeek-R1-Distill-Qwen-1.5B"},
    {"unsloth/phi-4", NULL}, /* converted to another family */
    {"unsloth/Qwen2.5-7B-unsloth-bnb-4bit", NULL},
    {"Qwen/Qwen2-57B", NULL}, /* has the letters of Qwen2.5-7B */
    {"qwen257b", NULL},
    {"meta-llama/Meta-Llama-3-8B", "Llama-3-8B"},
    {"llama-2-7b", "Llama-2-7B"},
    {"Llama-2-7b-chat-hf", "Llama-2-7B"},
    {"somebody/Qwen2.5-7B", NULL}, /* another repository may hold another architecture */
    {"-Qwen2.5-7B", NULL},
    {"./Qwen2.5-7B", NULL},
    {"-", NULL},
    {"Qwen/", NULL},
    {"Qwen2.", NULL},
    {"", NULL},
};

/* C2 */
START_TEST(letter_case_does_not_matter_and_owners_do) {
    const struct pl_known_model *k = pl_catalogue_find(names[_i].name, NULL);
    if (names[_i].row)
        ck_assert_str_eq(k->name, names[_i].row);
    else
        ck_assert_ptr_null(k);
}
END_TEST

static const struct {
    const char *name, *id;
} spoken[] = {
    {"llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"},
    {"llama3.1", "meta-llama/Llama-3.1-8B-Instruct"},
    {"Llama3.1-8B", "meta-llama/Llama-3.1-8B"},
    {"qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct"},
    {"qwen2_5-7b", "Qwen/Qwen2.5-7B"},
    {"Qwen/Qwen2_5-7B_Instruct", "Qwen/Qwen2.5-7B-Instruct"},
    {"mistral", "mistralai/Mistral-7B-Instruct-v0.3"},
    {"phi4", "microsoft/phi-4"},
    {"gemma3-4b-it", "google/gemma-3-4b-it"},
    {"deepseek-r1:7b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"},
};

START_TEST(what_people_write_is_taken_for_an_id_and_said_to_be_a_guess) {
    struct pl_known_as as;
    ck_assert_msg(pl_catalogue_find(spoken[_i].name, &as) != NULL, "%s", spoken[_i].name);
    ck_assert_str_eq(as.id, spoken[_i].id);
    ck_assert(as.guessed);
}
END_TEST

static const struct {
    const char *word, *near;
} misspelt[] = {
    {"Qwen2.5-7B-Instuct", "Qwen2.5-7B-Instruct, Qwen2.5-3B-Instruct or Qwen2.5-72B-Instruct"},
    {"Qwen/Qwen2.5-8B", "Qwen2.5-3B, Qwen2.5-7B or Qwen2.5-14B"},
    {"lama-3.1-8b", "Llama-3.1-8B, Llama-3-8B or Llama-3.1-70B"},
    {"zzzzzzzz", ""},
};

START_TEST(the_nearest_names_come_nearest_first) {
    struct pl_text near = {0};
    pl_catalogue_nearest(misspelt[_i].word, &near);
    ck_assert_str_eq(pl_text_str(&near), misspelt[_i].near);
    pl_text_finish(&near);
}
END_TEST

/* --- where a name leads ----------------------------------------------------------------------- */

static char dir[SCRATCH_PATH];

static void make_hub(void) {
    scratch_make(dir);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    ck_assert_int_eq(setenv("HOME", dir, 1), 0);
}

static void remove_hub(void) {
    scratch_remove(dir);
}

static void make_dirs(const char *path) {
    char part[2 * SCRATCH_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0700);
        *slash = '/';
    }
    mkdir(part, 0700);
}

/* A snapshot as huggingface_hub lays it out; `ref` names it, `commit` is where it lies. */
static void make_snapshot(const char *root, const char *repository, const char *ref,
                          const char *commit) {
    const char *repo = textf("%s/%s/%s", dir, root, repository);
    make_dirs(textf("%s/refs", repo));
    make_dirs(textf("%s/snapshots/%s", repo, commit));
    file_write(textf("%s/refs/main", repo), ref);
    file_write(textf("%s/snapshots/%s/config.json", repo, commit), "{}");
}

static const struct {
    const char *variable, *value, *root; /* value: below the scratch directory */
} roots[] = {
    {"HF_HUB_CACHE", "a", "a"},
    {"HUGGINGFACE_HUB_CACHE", "b", "b"},
    {"HF_HOME", "c", "c/hub"},
    {"XDG_CACHE_HOME", "d", "d/huggingface/hub"},
    {NULL, NULL, ".cache/huggingface/hub"},
};

/* H1 of hub_cache.h, R2 of resolve.h */
START_TEST(the_hub_cache_is_found_where_each_variable_puts_it) {
    struct pl_model_ref ref;
    struct pl_diag d = {0};
    make_snapshot(roots[_i].root, "models--Qwen--Qwen2.5-7B", "0123abc", "0123abc");
    if (roots[_i].variable) setenv(roots[_i].variable, in_dir(dir, roots[_i].value), 1);
    ck_assert_msg(pl_model_resolve("Qwen/Qwen2.5-7B", &ref, NULL, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_HUB_CACHE);
    ck_assert_str_eq(ref.weights_dir, textf("%s/%s/models--Qwen--Qwen2.5-7B/snapshots/0123abc", dir,
                                            roots[_i].root));
    ck_assert_str_eq(ref.config, textf("%s/config.json", ref.weights_dir));
    pl_model_ref_finish(&ref);
}
END_TEST

/* R4 of resolve.h */
START_TEST(a_model_is_found_in_the_cache_by_the_id_that_its_name_means) {
    struct pl_model_ref ref;
    struct pl_text notes = {0};
    make_snapshot(".cache/huggingface/hub", "models--Qwen--Qwen2.5-7B-Instruct", "1", "1");
    ck_assert_int_eq(pl_model_resolve("qwen2.5-7b-instruct", &ref, &notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_HUB_CACHE);
    ck_assert_str_eq(pl_text_str(&notes), "");
    pl_model_ref_finish(&ref);
    ck_assert_int_eq(pl_model_resolve("qwen2.5:7b", &ref, &notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_HUB_CACHE);
    ck_assert_str_eq(pl_text_str(&notes), "`qwen2.5:7b` is taken for Qwen/Qwen2.5-7B-Instruct\n");
    pl_model_ref_finish(&ref);
    pl_text_finish(&notes);
}
END_TEST

/* R1 of resolve.h */
START_TEST(a_directory_wins_over_the_cache_and_the_cache_over_the_catalogue) {
    struct pl_model_ref ref;
    make_snapshot(".cache/huggingface/hub", "models--Qwen2.5-7B", "1", "1");
    ck_assert_int_eq(pl_model_resolve("Qwen2.5-7B", &ref, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_HUB_CACHE);
    pl_model_ref_finish(&ref);
    make_dirs(in_dir(dir, "Qwen2.5-7B"));
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(pl_model_resolve("Qwen2.5-7B", &ref, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_PATH);
    ck_assert_str_eq(ref.config, "Qwen2.5-7B/config.json");
    pl_model_ref_finish(&ref);
}
END_TEST

START_TEST(without_a_cache_the_catalogue_answers_and_has_no_weights) {
    static struct pl_model m;
    struct pl_model_ref ref;
    struct pl_text notes = {0};
    ck_assert_int_eq(pl_model_resolve("Qwen/Qwen2.5-7B-Instruct", &ref, &notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_CATALOGUE);
    ck_assert_ptr_null(ref.weights_dir);
    ck_assert_str_eq(pl_text_str(&notes), "");
    ck_assert_int_eq(pl_model_read(ref.config, &m, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_model_param_count(&m), 7615616512u);
    pl_model_ref_finish(&ref);
}
END_TEST

/* refs/main: a snapshot that is gone, nothing, a way out of the cache. */
static const char *const bad_refs[] = {"gone", "", "../../..", "..", "\n"};

/* R3 of resolve.h */
START_TEST(a_broken_cache_is_named_and_only_a_known_model_passes_it_over) {
    struct pl_model_ref ref;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    make_snapshot(".cache/huggingface/hub", "models--Qwen--Qwen2.5-7B", bad_refs[_i], "0123abc");
    make_snapshot(".cache/huggingface/hub", "models--me--mine", bad_refs[_i], "0123abc");

    ck_assert_int_eq(pl_model_resolve("Qwen/Qwen2.5-7B", &ref, &notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_CATALOGUE);
    ck_assert_msg(strstr(pl_text_str(&notes), "is broken"), "%s", pl_text_str(&notes));
    pl_model_ref_finish(&ref);
    pl_text_finish(&notes);

    ck_assert_int_eq(pl_model_resolve("me/mine", &ref, &notes, &d), PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(d.message, "the hub cache of `me/mine` is broken"));
    ck_assert_ptr_null(ref.config);
    ck_assert_str_eq(pl_text_str(&notes), "");
}
END_TEST

static void expect_tokenizer(const struct pl_job *job, const char *expected) {
    char *path;
    struct pl_diag d = {0};
    ck_assert_msg(pl_find_tokenizer(job, &path, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(path, expected);
    free(path);
}

/* F1 of find.h, F2 of find.h */
START_TEST(a_tokenizer_is_the_one_that_is_named_or_that_of_the_model) {
    struct pl_job job;
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    make_dirs(in_dir(dir, "m"));
    file_write(in_dir(dir, "m/config.json"), "{}");
    ck_assert_int_eq(pl_job_set(&job, "model", in_dir(dir, "m"), NULL), PL_ERR_OK);
    expect_tokenizer(&job, in_dir(dir, "m/"));
    ck_assert_int_eq(pl_job_set(&job, "tokenizer", "own.json", NULL), PL_ERR_OK);
    expect_tokenizer(&job, "own.json");
    job.path = strdup(in_dir(dir, "job.yaml"));
    file_write(in_dir(dir, "own.json"), "{}");
    expect_tokenizer(&job, in_dir(dir, "own.json"));
    ck_assert_int_eq(chdir(dir), 0);
    expect_tokenizer(&job, "own.json");
    pl_job_finish(&job);
}
END_TEST

START_TEST(an_unknown_name_says_where_it_was_looked_for_and_what_is_near) {
    struct pl_model_ref ref;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_model_resolve("Qwen/Qwen2.5-7B-Instuct", &ref, NULL, &d),
                     PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(d.message, "models--Qwen--Qwen2.5-7B-Instuct"));
    ck_assert_ptr_nonnull(strstr(d.hint, "Qwen2.5-7B-Instruct"));
    ck_assert_ptr_null(ref.config);
}
END_TEST

static const char *const paths[] = {
    "/no/such/model", "./Qwen2.5-7B", "a/b/c",         "no such model",
    "../Qwen2.5-7B",  "a/../b",       "a/config.json", ""};

START_TEST(what_reads_like_a_path_is_one_whether_it_exists_or_not) {
    struct pl_model_ref ref;
    ck_assert_int_eq(pl_model_resolve(paths[_i], &ref, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(ref.origin, PL_ORIGIN_PATH);
    ck_assert_str_eq(ref.config, paths[_i]);
    pl_model_ref_finish(&ref);
}
END_TEST

START_TEST(the_scheme_reads_the_catalogue_and_nothing_else) {
    static struct pl_model m;
    struct pl_diag d = {0};
    char *text;
    uint64_t bytes;
    ck_assert_int_eq(pl_model_read("catalogue:SmolLM2-135M", &m, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_model_param_count(&m), 134515008);
    ck_assert_int_eq(pl_model_read_text("catalogue:SmolLM2-135M", &text, &bytes, NULL), PL_ERR_OK);
    ck_assert_uint_eq(strlen(text), bytes);
    ck_assert_str_eq(text, pl_catalogue_find("SmolLM2-135M", NULL)->config);
    free(text);
    ck_assert_int_eq(pl_model_read("catalogue:nothing", &m, &d), PL_ERR_MODEL_FILE);
    ck_assert_ptr_nonnull(strstr(d.message, "`nothing`"));
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("model.catalogue");
    TCase *tc = tcase_create("catalogue");
    tcase_add_loop_test(tc, a_row_reads_as_the_published_file_does, 0, N_MODELS);
    tcase_add_loop_test(tc, a_row_has_the_exact_counts, 0, N_MODELS);
    tcase_add_loop_test(tc, a_row_like_another_one_differs_from_it_and_stands_behind_it, 0,
                        N_MODELS);
    tcase_add_loop_test(tc, every_name_and_id_leads_to_its_own_row, 0, N_MODELS);
    tcase_add_loop_test(tc, every_id_is_found_however_its_words_are_separated, 0, N_MODELS);
    tcase_add_test(tc, the_table_knows_as_many_ids_as_it_is_said_to);
    tcase_add_loop_test(tc, what_people_write_is_taken_for_an_id_and_said_to_be_a_guess, 0,
                        COUNT(spoken));
    tcase_add_loop_test(tc, letter_case_does_not_matter_and_owners_do, 0, COUNT(names));
    tcase_add_loop_test(tc, the_nearest_names_come_nearest_first, 0, COUNT(misspelt));
    suite_add_tcase(s, tc);
    tc = tcase_create("resolve");
    tcase_add_checked_fixture(tc, make_hub, remove_hub);
    tcase_add_loop_test(tc, the_hub_cache_is_found_where_each_variable_puts_it, 0, COUNT(roots));
    tcase_add_test(tc, a_model_is_found_in_the_cache_by_the_id_that_its_name_means);
    tcase_add_test(tc, a_directory_wins_over_the_cache_and_the_cache_over_the_catalogue);
    tcase_add_test(tc, without_a_cache_the_catalogue_answers_and_has_no_weights);
    tcase_add_loop_test(tc, a_broken_cache_is_named_and_only_a_known_model_passes_it_over, 0,
                        COUNT(bad_refs));
    tcase_add_test(tc, a_tokenizer_is_the_one_that_is_named_or_that_of_the_model);
    tcase_add_test(tc, an_unknown_name_says_where_it_was_looked_for_and_what_is_near);
    tcase_add_loop_test(tc, what_reads_like_a_path_is_one_whether_it_exists_or_not, 0,
                        COUNT(paths));
    tcase_add_test(tc, the_scheme_reads_the_catalogue_and_nothing_else);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
