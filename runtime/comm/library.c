#include "runtime/comm/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool pl_library_in_wheel(const char *folder, const char *name, char *path, size_t size) {
    char pattern[PATH_MAX];
    glob_t found;
    bool one = false;
    int n = snprintf(pattern, sizeof pattern, "%s/../lib/python3*/site-packages/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof pattern) return false;
    if (glob(pattern, 0, NULL, &found) != 0) return false;
    if (found.gl_pathc > 0) {
        n = snprintf(path, size, "%s", found.gl_pathv[0]);
        one = n > 0 && (size_t)n < size;
    }
    globfree(&found);
    return one;
}

void *pl_library_open(const char *name, int flags) {
    char folder[PATH_MAX], path[PATH_MAX];
    if (strncmp(name, "nvidia/", strlen("nvidia/")) != 0) return dlopen(name, flags);
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (!slash) return NULL;
    *slash = 0;
    return pl_library_in_wheel(folder, name, path, sizeof path) ? dlopen(path, flags) : NULL;
}
