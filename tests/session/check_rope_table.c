/* check_rope_table.c - frequencies and their scale against those of transformers.
 *
 * Recorded from ROPE_INIT_FUNCTIONS of transformers 5.23, which computes them in fp32: a power and
 * a few products, so 2e-6 of each. */
#include "runtime/session/rope_table.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLERANCE 2e-6
#define PAIRS     8

static const struct {
    const char *config; /* text after the sizes */
    double scale;
    double freq[PAIRS];
} recorded[] = {
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_theta\":10000.0,"
     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}",
     1,
     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":{\"rope_type\":"
     "\"llama3\",\"rope_theta\":1e4,\"factor\":4.0,\"low_freq_factor\":1.0,"
     "\"high_freq_factor\":4.0}",
     1,
     {1.0, 0.316227764, 0.100000001, 0.0203718338, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_theta\":10000.0,"
     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128}",
     1.138629436111989,
     {1.0, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {"\"model_type\":\"qwen2\",\"max_position_embeddings\":512,\"rope_theta\":1e6,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
     "\"original_max_position_embeddings\":128,\"beta_fast\":16,\"beta_slow\":2,"
     "\"attention_factor\":0.75}",
     0.75,
     {1.0, 0.111142464, 0.00790569466, 0.00140585331, 0.000250000012, 4.44569851e-05,
      7.90569356e-06, 1.40585337e-06}},
    {"\"model_type\":\"mistral\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":8.0,"
     "\"original_max_position_embeddings\":64,\"mscale\":0.7,\"mscale_all_dim\":1.3}",
     0.9017839869787123,
     {1.0, 0.223994657, 0.0416666642, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006,
      3.95284733e-05}},
    /* the length of the training is max_position_embeddings if no key gives it */
    {"\"model_type\":\"llama\",\"max_position_embeddings\":256,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":2.0}",
     1.0693147180559945,
     {1.0, 0.276699275, 0.075000003, 0.0197642371, 0.00499999989, 0.00158113893, 0.000500000024,
      0.000158113893}},
    /* a factor of null is the ratio of the lengths */
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":null,"
     "\"original_max_position_embeddings\":64}",
     1.2079441541679836,
     {1.0, 0.223994657, 0.0416666642, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006,
      3.95284733e-05}},
    /* the top level wins */
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,"
     "\"original_max_position_embeddings\":32,\"rope_parameters\":{\"rope_type\":\"yarn\","
     "\"rope_theta\":1e4,\"factor\":2.0,\"original_max_position_embeddings\":128}",
     1.0693147180559945,
     {1.0, 0.237170815, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893, 0.000500000024,
      0.000158113893}},
    /* 0 and null are left out; a ramp without width */
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":2.0,"
     "\"original_max_position_embeddings\":4,\"beta_fast\":0,\"beta_slow\":null,\"mscale\":0.5,"
     "\"mscale_all_dim\":0}",
     1.0693147180559945,
     {1.0, 0.158113882, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893, 0.000500000024,
      0.000158113893}},
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":1.0,"
     "\"original_max_position_embeddings\":512}",
     1,
     {1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":4.0,"
     "\"original_max_position_embeddings\":128,\"truncate\":null}",
     1.138629436111989,
     {1.0, 0.225637481, 0.04270567, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    /* a ramp that falls */
    {"\"model_type\":\"llama\",\"max_position_embeddings\":512,\"rope_parameters\":"
     "{\"rope_type\":\"yarn\",\"rope_theta\":1e4,\"factor\":4.0,"
     "\"original_max_position_embeddings\":128,\"beta_fast\":1,\"beta_slow\":32}",
     1.138629436111989,
     {0.25, 0.197642356, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {"\"model_type\":\"smollm3\",\"max_position_embeddings\":512,\"rope_scaling\":"
     "{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128}",
     1.138629436111989,
     {1.0, 0.101918086, 0.00664786994, 0.00108406111, 0.000176776681, 2.88267875e-05,
      4.70075383e-06, 7.66546975e-07}},
    {"\"model_type\":\"qwen3\",\"head_dim\":16,\"max_position_embeddings\":4096,"
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":150000,\"factor\":32.0,"
     "\"original_max_position_embeddings\":4096,\"truncate\":false}",
     1.3465735902799727,
     {1.0, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.8188337e-05, 4.09997847e-06,
      9.24208962e-07}},
};
#define N_RECORDED (int)(sizeof recorded / sizeof *recorded)

static const struct pl_rope *read_rope(const char *config) {
    static struct pl_model m;
    struct pl_diag d = {0};
    char json[1024];
    snprintf(json, sizeof json,
             "{\"hidden_size\":64,\"intermediate_size\":64,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":200000,%s}",
             config);
    ck_assert_msg(pl_model_parse("x", json, strlen(json), &m, &d) == PL_ERR_OK, "%s: %s", config,
                  d.message);
    ck_assert_uint_eq(m.rope[0].dim, 2 * PAIRS);
    return &m.rope[0];
}

static void expect_frequencies(const char *config, const double *got, const double *want) {
    for (int i = 0; i < PAIRS; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= TOLERANCE * want[i],
                      "%s: pair %d turns by %.9g, in transformers by %.9g", config, i, got[i],
                      want[i]);
}

START_TEST(frequencies_and_scale_are_those_of_transformers) {
    const struct pl_rope *r = read_rope(recorded[_i].config);
    double freq[PAIRS];
    pl_rope_frequencies(r, 0, freq);
    expect_frequencies(recorded[_i].config, freq, recorded[_i].freq);
    ck_assert_double_eq_tol(r->attention_factor, recorded[_i].scale, 1e-14);
}
END_TEST

#define FACTORS "\"short_factor\":[1,1,1.1,1.2,1,1,1,1],\"long_factor\":[1,2,3,4,5,6,7,8]"

#define DYNAMIC                                                                                    \
    "\"model_type\":\"llama\",\"max_position_embeddings\":128,\"rope_theta\":10000.0,"             \
    "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}"
#define LONGROPE(positions, more)                                                                  \
    "\"model_type\":\"phi3\",\"max_position_embeddings\":" positions                               \
    ",\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\"," FACTORS    \
    "," more "}"

/* Models that use other frequencies beyond a length. */
static const struct {
    const char *config;
    uint64_t longest, length; /* longest sequence of a micro-batch; length to which its frequencies
                                 belong */
    double scale;
    double freq[PAIRS];
} by_length[] = {
    {DYNAMIC,
     100,
     0,
     1,
     {1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {DYNAMIC,
     128,
     0,
     1,
     {1.0, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {DYNAMIC,
     129,
     129,
     1,
     {1.0, 0.314840704, 0.0991246626, 0.0312084779, 0.00982569903, 0.00309352996, 0.000973969174,
      0.000306645117}},
    {DYNAMIC,
     512,
     512,
     1,
     {1.0, 0.219212472, 0.0480541028, 0.0105340583, 0.00230919686, 0.000506204728, 0.000110966386,
      2.43252125e-05}},
    {LONGROPE("512", "\"factor\":2.0"),
     64,
     0,
     1.0801234497346435,
     {1.0, 0.316227764, 0.0909090936, 0.0263523124, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {LONGROPE("512", "\"factor\":2.0"),
     300,
     65,
     1.0801234497346435,
     {1.0, 0.158113882, 0.0333333351, 0.00790569466, 0.00200000009, 0.00052704633, 0.000142857141,
      3.95284733e-05}},
    /* Phi3Config's 4096 wins over the settings */
    {"\"model_type\":\"phi3\",\"max_position_embeddings\":8192,\"rope_scaling\":{\"type\":"
     "\"yarn\"," FACTORS ",\"original_max_position_embeddings\":64}",
     4096,
     0,
     1.0408329997330663,
     {1.0, 0.316227764, 0.0909090936, 0.0263523124, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
};
#define N_BY_LENGTH (int)(sizeof by_length / sizeof *by_length)

START_TEST(frequencies_beyond_a_length_are_those_of_transformers) {
    const struct pl_rope *r = read_rope(by_length[_i].config);
    double freq[PAIRS];
    const uint64_t length = pl_rope_length(r, by_length[_i].longest);
    ck_assert_uint_eq(length, by_length[_i].length);
    pl_rope_frequencies(r, length, freq);
    expect_frequencies(by_length[_i].config, freq, by_length[_i].freq);
    ck_assert_double_eq_tol(r->attention_factor, by_length[_i].scale, 1e-14);
}
END_TEST

START_TEST(both_rows_of_a_position_carry_the_scale) {
    const struct pl_rope *r = read_rope(recorded[3].config);
    const double freq[PAIRS] = {1, 0.5};
    float row[2 * PAIRS];
    pl_rope_rows(r, freq, false, 7, 1, row);
    ck_assert_double_eq_tol(row[0], 0.75 * cos(7), 1e-7);
    ck_assert_double_eq_tol(row[1], 0.75 * sin(7), 1e-7);
    ck_assert_double_eq_tol(row[2], 0.75 * cos(3.5), 1e-7);
    ck_assert_double_eq_tol(row[3], 0.75 * sin(3.5), 1e-7);
    ck_assert_double_eq_tol(row[2 * PAIRS - 2], 0.75, 1e-7);
}
END_TEST

/* get_llama_4_attn_scale of modeling_ministral3.py. */
START_TEST(queries_grow_with_every_original_length) {
    const struct pl_rope *r = read_rope(
        "\"model_type\":\"ministral3\",\"head_dim\":16,\"rope_parameters\":{\"rope_type\":\"yarn\","
        "\"rope_theta\":1e4,\"factor\":16.0,\"original_max_position_embeddings\":8,"
        "\"mscale\":1.0,\"mscale_all_dim\":1.0,\"llama_4_scaling_beta\":0.1}");
    static const struct {
        uint64_t position;
        double scale;
    } rows[] = {{0, 1}, {7, 1}, {8, 1.0693147180559945}, {31, 1.1386294361119891}};
    const double freq[PAIRS] = {0};
    float row[2 * PAIRS];
    ck_assert(pl_rope_grows_queries(r, 9) && !pl_rope_grows_queries(r, 8));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_rope_rows(r, freq, true, rows[i].position, 1, row);
        ck_assert_double_eq_tol(row[0], rows[i].scale, 1e-7);
        pl_rope_rows(r, freq, false, rows[i].position, 1, row);
        ck_assert_double_eq_tol(row[0], 1, 1e-7);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.rope_table");
    TCase *t = tcase_create("rope_table");
    tcase_add_loop_test(t, frequencies_and_scale_are_those_of_transformers, 0, N_RECORDED);
    tcase_add_loop_test(t, frequencies_beyond_a_length_are_those_of_transformers, 0, N_BY_LENGTH);
    tcase_add_test(t, both_rows_of_a_position_carry_the_scale);
    tcase_add_test(t, queries_grow_with_every_original_length);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
