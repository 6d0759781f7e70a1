/* check_load.c - the emulation makes tensor maps and loads boxes by the documented rules, and
 * notices what a GPU would not. */
#include "tests/cuda_sim/load_kernels.h"
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/sim_hopper.h"

#include <check.h>
#include <signal.h>
#include <string.h>

enum { DIM = 80, HEADS = 3, ROWS = 100, LD = HEADS * DIM + 8, BOX = LOAD_ROWS * LOAD_COLS };

static void *device(size_t bytes) {
    void *p = NULL;
    ck_assert_int_eq(cudaMalloc(&p, bytes), cudaSuccess);
    return p;
}

/* A tensor and a box, which a map is made of; the address counts from that of the memory. */
struct tensor {
    uint64_t address, sizes[3], strides[2];
    uint32_t box[3];
    CUtensorMapSwizzle swizzle;
};
static const struct tensor whole = {
    0, {DIM, HEADS, ROWS}, {DIM * 2, LD * 2}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B};

static CUresult make(const struct tensor *t, void *p, CUtensorMap *out) {
    static const uint32_t steps[] = {1, 1, 1};
    return cuTensorMapEncodeTiled(
        out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (char *)p + t->address, t->sizes, t->strides,
        t->box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, t->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static const struct tensor refused[] = {
    {8, {DIM, HEADS, ROWS}, {160, 496}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {0, HEADS, ROWS}, {160, 496}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, UINT64_C(1) << 33}, {160, 496}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {152, 496}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 488}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, UINT64_C(1) << 40}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 496}, {64, 1, 257}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 496}, {64, 0, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 496}, {60, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 496}, {72, 1, 64}, CU_TENSOR_MAP_SWIZZLE_128B},
    {0, {DIM, HEADS, ROWS}, {160, 496}, {64, 1, 64}, CU_TENSOR_MAP_SWIZZLE_64B},
};

START_TEST(a_map_of_what_has_none_is_refused) {
    static uint16_t x[64] __attribute__((aligned(16)));
    CUtensorMap map;
    ck_assert_int_eq(make(&whole, x, &map), CUDA_SUCCESS);
    ck_assert_int_eq(make(&refused[_i], x, &map), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static uint16_t number(uint32_t row, uint32_t head, uint32_t col) {
    return (uint16_t)(0x3000 + row * 64 + head * 21 + col);
}

/* A tensor on the device, with NaN between its rows. */
static CUtensorMap tensor_with_gaps(void) {
    static uint16_t host[ROWS * LD];
    memset(host, 0xFF, sizeof host);
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t i = 0; i < HEADS * DIM; i++)
            host[row * LD + i] = number(row, i / DIM, i % DIM);
    CUtensorMap map;
    /* The last row has no gap after it. */
    uint16_t *p = device(sizeof host - (LD - HEADS * DIM) * sizeof *host);
    ck_assert_int_eq(make(&whole, p, &map), CUDA_SUCCESS);
    ck_assert_int_eq(cudaMemcpy(p, host, sizeof host - (LD - HEADS * DIM) * sizeof *host,
                                cudaMemcpyHostToDevice),
                     cudaSuccess);
    return map;
}

static const uint32_t places[][3] = {{0, 0, 0},   {0, 2, 7},   {64, 1, 0}, {0, 1, 40},
                                     {64, 2, 99}, {0, 0, 100}, {0, 3, 0},  {128, 0, 0}};

START_TEST(a_box_is_the_tensor_and_zeros_outside_it) {
    const uint32_t *at = places[_i];
    const CUtensorMap map = tensor_with_gaps();
    uint16_t *box = device(BOX * sizeof *box);
    float *product = device(BOX * sizeof *product);
    load_box(&map, at, NO_MISTAKE, box, product);
    for (uint32_t i = 0; i < BOX; i++) {
        const uint32_t col = at[0] + i % LOAD_COLS, row = at[2] + i / LOAD_COLS;
        const bool is_inside = col < DIM && at[1] < HEADS && row < ROWS;
        ck_assert_uint_eq(box[i], is_inside ? number(row, at[1], col) : 0);
    }
    cudaFree(box);
    cudaFree(product);
}
END_TEST

START_TEST(mistakes_end_the_process) {
    const CUtensorMap map = tensor_with_gaps();
    load_box(&map, places[0], (enum load_mistake)_i, device(BOX * 2), device(BOX * 4));
}
END_TEST

START_TEST(a_map_that_was_not_made_ends_the_process) {
    const CUtensorMap map = {{0}};
    load_box(&map, places[0], NO_MISTAKE, device(BOX * 2), device(BOX * 4));
}
END_TEST

int main(void) {
    Suite *s = suite_create("load");
    TCase *tc = tcase_create("boxes");
    tcase_add_loop_test(tc, a_map_of_what_has_none_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(tc, a_box_is_the_tensor_and_zeros_outside_it, 0,
                        sizeof places / sizeof *places);
    tcase_add_loop_test_raise_signal(tc, mistakes_end_the_process, SIGABRT, NO_MISTAKE + 1,
                                     LOAD_MISTAKES_END);
    tcase_add_test_raise_signal(tc, a_map_that_was_not_made_ends_the_process, SIGABRT);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
