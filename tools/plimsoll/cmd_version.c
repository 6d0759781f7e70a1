/* cmd_version.c - what this binary is. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/json_tree.h"
#include "runtime/device/device.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

static const struct pl_device_ops *const back_ends[] = {&pl_device_cpu, &pl_device_cuda,
                                                        &pl_device_null};
#define N_BACK_ENDS (sizeof back_ends / sizeof *back_ends)

static json_t *names(void) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < N_BACK_ENDS; i++)
        if (!back_ends[i]->missing) pl_json_append(&list, json_string(back_ends[i]->name));
    return list;
}

int pl_cmd_version(const struct pl_cli *cli) {
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        printf("plimsoll %s\ncompiler: %s\nback-ends:", PL_VERSION, COMPILER);
        for (size_t i = 0; i < N_BACK_ENDS; i++)
            if (!back_ends[i]->missing) printf(" %s", back_ends[i]->name);
        printf("\n");
        return 0;
    }
    struct pl_diag d = {0};
    json_t *fields = json_pack("{s:s, s:s, s:o}", "version", PL_VERSION, "compiler", COMPILER,
                               "backends", names());
    return pl_cli_print_json(fields, &d) == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
