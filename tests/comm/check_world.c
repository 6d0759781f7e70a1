/* check_world.c - who a process is, by the variables of every launcher. */
#include "runtime/comm/comm.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char *const all_names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "PLIMSOLL_LAUNCHED",
                                        "TORCHELASTIC_USE_AGENT_STORE"};

/* "NAME=value NAME=value ..." and nothing else of these. */
static void set_all(const char *settings) {
    char text[512], *save = NULL;
    for (size_t i = 0; i < sizeof all_names / sizeof *all_names; i++)
        unsetenv(all_names[i]);
    ck_assert(strlen(settings) < sizeof text);
    strcpy(text, settings);
    for (char *s = strtok_r(text, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(s, '=');
        *equals = 0;
        setenv(s, equals + 1, 1);
    }
}

#define TORCH "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 "
#define OMPI                                                                                       \
    "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "                  \
    "OMPI_COMM_WORLD_LOCAL_SIZE=4 "
#define MPICH "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 "
#define SLURM "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 "

static const struct {
    const char *settings, *launcher;
    uint32_t rank, size, local_rank, local_size;
} worlds[] = {
    {"", NULL, 0, 1, 0, 1},
    {TORCH, "torchrun", 5, 8, 1, 4},
    {TORCH "PLIMSOLL_LAUNCHED=1", "plimsoll", 5, 8, 1, 4},
    {OMPI, "Open MPI", 5, 8, 1, 4},
    {MPICH, "MPICH", 5, 8, 1, 4},
    {SLURM "SLURM_STEP_TASKS_PER_NODE=4(x2)", "srun", 5, 8, 1, 4},
    {SLURM "SLURM_STEP_TASKS_PER_NODE=4,3,1", "srun", 5, 8, 1, 3},
    {SLURM "SLURM_STEP_TASKS_PER_NODE=2,2(x3)", "srun", 5, 8, 1, 2},
    /* Two that agree; srun that started mpirun's daemons; a batch script, which is no rank. */
    {TORCH OMPI, "torchrun", 5, 8, 1, 4},
    {OMPI "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0", "Open MPI", 5, 8, 1, 4},
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0", NULL, 0, 1, 0, 1},
    /* srun gives the counts of the machine, its PMI gives the ranks. */
    {"PMI_RANK=5 PMI_SIZE=8 " SLURM "SLURM_STEP_TASKS_PER_NODE=4(x2)", "MPICH", 5, 8, 1, 4},
    {"RANK=0 WORLD_SIZE=1", "torchrun", 0, 1, 0, 1},
    {"RANK= WORLD_SIZE=", NULL, 0, 1, 0, 1},
    {"RANK=63 WORLD_SIZE=64 LOCAL_RANK=63 LOCAL_WORLD_SIZE=64", "torchrun", 63, 64, 63, 64},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

START_TEST(every_launcher_is_understood) {
    struct pl_world w;
    struct pl_diag d = {0};
    set_all(worlds[_i].settings);
    ck_assert_msg(pl_world_init(&w, &d) == PL_ERR_OK, "%s: %s", worlds[_i].settings, d.message);
    ck_assert_pstr_eq(w.launcher, worlds[_i].launcher);
    ck_assert_msg(w.rank == worlds[_i].rank && w.size == worlds[_i].size &&
                      w.local_rank == worlds[_i].local_rank &&
                      w.local_size == worlds[_i].local_size,
                  "%s: rank %u of %u, here %u of %u", worlds[_i].settings, w.rank, w.size,
                  w.local_rank, w.local_size);
}
END_TEST

#define SRUN SLURM "SLURM_STEP_TASKS_PER_NODE=4(x2) "

START_TEST(tasks_of_srun_are_known_whatever_names_the_ranks) {
    static const struct {
        const char *settings;
        bool by_srun;
    } cases[] = {{SRUN, true},
                 {SRUN MPICH, true},
                 {SRUN TORCH, true},
                 {MPICH, false},
                 {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 " MPICH, false},
                 {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pl_world w;
        set_all(cases[i].settings);
        ck_assert_int_eq(pl_world_init(&w, NULL), PL_ERR_OK);
        ck_assert_msg(w.by_srun == cases[i].by_srun, "%s", cases[i].settings);
    }
}
END_TEST

static const struct {
    const char *settings, *names; /* a part of the message */
} refused[] = {
    {"RANK=5", "RANK is set and WORLD_SIZE is not"},
    {"WORLD_SIZE=8", "WORLD_SIZE is set and RANK is not"},
    {"PMI_RANK=0", "PMI_SIZE is not"},
    {"RANK=eight WORLD_SIZE=8", "RANK is `eight`"},
    {"RANK=-1 WORLD_SIZE=8", "RANK is `-1`"},
    {"RANK=1x WORLD_SIZE=8", "RANK is `1x`"},
    {"RANK=99999999999999999999 WORLD_SIZE=8", "no number up to"},
    {"RANK=8 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8", "ranks count from 0"},
    {"RANK=0 WORLD_SIZE=0", "1 to 64 ranks"},
    {"RANK=0 WORLD_SIZE=65 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "1 to 64 ranks"},
    {"RANK=5 WORLD_SIZE=8", "LOCAL_RANK is not"},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1", "LOCAL_WORLD_SIZE is not"},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=4 LOCAL_WORLD_SIZE=4", "contradict"},
    {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=9", "contradict"},
    {TORCH "PMI_RANK=4 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4", "say rank 4 of 8"},
    {OMPI "PMI_RANK=5 PMI_SIZE=9", "say rank 5 of 9"},
    {TORCH "MASTER_ADDR=h MASTER_PORT=70000", "MASTER_PORT is `70000`"},
    {TORCH "MASTER_ADDR=h MASTER_PORT=0", "ports begin at 1"},
    {TORCH "MASTER_ADDR=0123456789012345678901234567890123456789012345678901234567890123",
     "MASTER_ADDR has more than 63"},
    {SLURM "SLURM_STEP_TASKS_PER_NODE=4(y2)", "SLURM_STEP_TASKS_PER_NODE is not"},
};
enum { N_REFUSED = sizeof refused / sizeof *refused };

START_TEST(contradictions_are_refused_by_name) {
    struct pl_world w;
    struct pl_diag d = {0};
    set_all(refused[_i].settings);
    ck_assert_msg(pl_world_init(&w, &d) == PL_ERR_COMM_INIT, "%s", refused[_i].settings);
    ck_assert_msg(strstr(d.message, refused[_i].names), "%s: %s", refused[_i].settings, d.message);
}
END_TEST

START_TEST(the_address_of_rank_0_is_taken) {
    struct pl_world w;
    set_all(TORCH "MASTER_ADDR=node7 MASTER_PORT=29500");
    ck_assert_int_eq(pl_world_init(&w, NULL), PL_ERR_OK);
    ck_assert_str_eq(w.address, "node7");
    ck_assert_uint_eq(w.port, 29500);
    set_all(TORCH "MASTER_ADDR=node7 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True");
    ck_assert_int_eq(pl_world_init(&w, NULL), PL_ERR_OK);
    ck_assert_uint_eq(w.port, 29501); /* torchrun listens at the other */
    set_all(TORCH "MASTER_ADDR=node7 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True "
                  "PLIMSOLL_LAUNCHED=1");
    ck_assert_int_eq(pl_world_init(&w, NULL), PL_ERR_OK);
    ck_assert_uint_eq(w.port, 29500);
}
END_TEST

int main(void) {
    Suite *s = suite_create("world");
    TCase *tc = tcase_create("world");
    tcase_add_loop_test(tc, every_launcher_is_understood, 0, N_WORLDS);
    tcase_add_test(tc, tasks_of_srun_are_known_whatever_names_the_ranks);
    tcase_add_loop_test(tc, contradictions_are_refused_by_name, 0, N_REFUSED);
    tcase_add_test(tc, the_address_of_rank_0_is_taken);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
