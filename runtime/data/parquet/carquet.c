#include "runtime/data/parquet/carquet.h"

#include "estimator/base/text.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The OpenMP library that comes with it is not made to be unloaded: dlclose() only gives the
 * reference back. */
#define FLAGS     (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)
#define VERSION   "0.7"
#define INSTALLED "/../lib/python3*/*-packages/carquet/libcarquet.so"

/* The search for the library, and why the nearest one was not taken. */
struct search {
    struct pl_carquet *c;
    char why[256];
};

/* Returns the name of the first function that the library lacks, NULL when it has all. */
static const char *find_functions(struct pl_carquet *c) {
    void *symbol;
/* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
#define X(result, name, arguments)                                                                 \
    symbol = dlsym(c->library, "carquet_" #name);                                                  \
    if (!symbol) return "carquet_" #name;                                                          \
    memcpy(&c->name, &symbol, sizeof symbol);
    PL_CARQUET_FUNCTIONS(X)
#undef X
    return NULL;
}

/* True if the library is the one that these declarations are of. */
static bool is_known(struct search *s, const char *name) {
    int major = 0, minor = 0, patch = 0;
    const char *lacks = find_functions(s->c);
    if (lacks) {
        snprintf(s->why, sizeof s->why, "%s lacks %s", name, lacks);
        return false;
    }
    s->c->version_components(&major, &minor, &patch);
    if (major == 0 && minor == 7) return true;
    snprintf(s->why, sizeof s->why, "%s is version %d.%d.%d", name, major, minor, patch);
    return false;
}

static bool try_library(struct search *s, const char *name) {
    s->c->library = dlopen(name, FLAGS);
    if (!s->c->library) {
        const char *why = dlerror();
        if (!*s->why) snprintf(s->why, sizeof s->why, "%s", why ? why : "it was not found");
        return false;
    }
    if (is_known(s, name)) return true;
    dlclose(s->c->library);
    s->c->library = NULL;
    return false;
}

/* Tries the packages of the Python whose programs are in bin[0, n). */
static bool try_packages(struct search *s, const char *bin, size_t n) {
    struct pl_text pattern = {0};
    glob_t found;
    bool ok = false;
    if (!n) return false;
    pl_text_addf(&pattern, "%.*s" INSTALLED, (int)n, bin);
    if (!pattern.failed && glob(pl_text_str(&pattern), 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !ok; i++)
            ok = try_library(s, found.gl_pathv[i]);
        globfree(&found);
    }
    pl_text_finish(&pattern);
    return ok;
}

static bool try_path(struct search *s) {
    const char *path = getenv("PATH");
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if (try_packages(s, path, n)) return true;
    }
    return false;
}

static bool try_next_to_program(struct search *s) {
    char self[512];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(self, '/');
    return slash && try_packages(s, self, (size_t)(slash - self));
}

static bool try_home(struct search *s) {
    static const char bin[] = "/.local/bin";
    const char *home = getenv("HOME");
    struct pl_text path = {0};
    if (!home || !*home) return false;
    pl_text_addf(&path, "%s%s", home, bin);
    const bool ok = try_packages(s, pl_text_str(&path), path.len);
    pl_text_finish(&path);
    return ok;
}

pl_err pl_carquet_load(struct pl_carquet *c, const char *path, struct pl_diag *d) {
    struct search s = {.c = c};
    const char *given = getenv("PLIMSOLL_CARQUET");
    *c = (struct pl_carquet){.library = NULL};
    if (given && *given ? try_library(&s, given)
                        : try_library(&s, "libcarquet.so") || try_path(&s) ||
                              try_next_to_program(&s) || try_home(&s))
        return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, path, 1, 0,
               "a Parquet file, and the library that decodes it is not there: carquet " VERSION
               ": %s",
               s.why);
    pl_diag_hint(d, "`pip install 'carquet==" VERSION ".*'` into the Python of your PATH, or name "
                    "its libcarquet.so in PLIMSOLL_CARQUET");
    return PL_ERR_DATA_SYNTAX;
}

void pl_carquet_unload(struct pl_carquet *c) {
    if (c->library) dlclose(c->library);
    *c = (struct pl_carquet){.library = NULL};
}
