#include "estimator/base/home_path.h"

#include "estimator/base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 60

static pl_err refuse_path(struct pl_home_problem *p, const char *path, const char *what,
                          const char *hint) {
    snprintf(p->what, sizeof p->what, "`%.*s` %s", SHOWN, path, what);
    snprintf(p->hint, sizeof p->hint, "%s", hint);
    return PL_ERR_CONFIG_RANGE;
}

pl_err pl_home_path(const char *path, char **out, struct pl_home_problem *problem) {
    const char *home = getenv("HOME");
    const bool of_home = path[0] == '~' && (!path[1] || path[1] == '/');
    if (path[0] == '$' || strstr(path, "${"))
        return refuse_path(problem, path, "names a variable of the shell, which is not read here",
                           "write the path itself; `~/` is the home directory");
    if (path[0] == '~' && !of_home)
        return refuse_path(problem, path, "names the home of another user",
                           "write the path itself; `./~NAME` is a file called so");
    if (of_home && !(home && *home))
        return refuse_path(problem, path, "is in the home directory, but HOME is not set",
                           "set HOME, or write the path itself");
    if (!of_home) {
        *out = pl_strdup(path);
    } else if (pl_asprintf(out, "%s%s", home, path + 1) < 0) {
        *out = NULL;
    }
    return *out ? PL_ERR_OK : PL_ERR_HOST_OOM;
}
