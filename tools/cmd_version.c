/* cmd_version.c - what this binary is. */
#include "tools/cli.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

int pl_cmd_version(const struct pl_cli *cli) {
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        printf("plimsoll %s\ncompiler: %s\nback-ends: cpu null\n", PL_VERSION, COMPILER);
        return 0;
    }
    struct pl_diag d = {0};
    json_t *fields = json_pack("{s:s, s:s, s:[s, s]}", "version", PL_VERSION, "compiler", COMPILER,
                               "backends", "cpu", "null");
    return pl_cli_print_json(fields, &d) == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
