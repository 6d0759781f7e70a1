/* Formats: proc(5); Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux. */
#include "runtime/device/available.h"

#include "estimator/base/checked.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define TEXT_BYTES 16384 /* the files are tables of some lines */

struct text {
    char s[TEXT_BYTES];
};

__attribute__((format(printf, 3, 4))) static bool read_text(struct text *t, const char *root,
                                                            const char *fmt, ...) {
    char path[PATH_MAX];
    va_list ap;
    int n = snprintf(path, sizeof path, "%s", root);
    if (n < 0 || n >= PATH_MAX) return false;
    va_start(ap, fmt);
    int more = vsnprintf(path + n, sizeof path - (size_t)n, fmt, ap);
    va_end(ap);
    if (more < 0 || more >= PATH_MAX - n) return false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t got = fread(t->s, 1, TEXT_BYTES - 1, f);
    bool ok = !ferror(f);
    fclose(f);
    t->s[got] = 0;
    return ok;
}

/* The number of the line that begins with `key`. */
static bool field(const struct text *t, const char *key, uint64_t *out) {
    const size_t n = strlen(key);
    for (const char *line = t->s; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && strchr(": \t", line[n]) && line[n])
            return sscanf(line + n, "%*[: \t]%" SCNu64, out) == 1;
    }
    return false;
}

static void bound(struct pl_available *a, uint64_t bytes, const char *source) {
    if (bytes < a->bytes) *a = (struct pl_available){bytes, source, true};
}

static uint64_t left_of(uint64_t limit, uint64_t used) {
    return limit - pl_u64_min(limit, used);
}

/* --- cgroups ---------------------------------------------------------------------------------- */

struct hierarchy {
    const char *controller; /* "" = v2 */
    const char *mount, *usage, *inactive, *active;
    const char *limits[2]; /* above memory.high a process is stalled until it gives memory back */
};

static const struct hierarchy hierarchies[] = {
    {"",
     "/sys/fs/cgroup",
     "memory.current",
     "inactive_file",
     "active_file",
     {"memory.max", "memory.high"}},
    {"",
     "/sys/fs/cgroup/unified",
     "memory.current",
     "inactive_file",
     "active_file",
     {"memory.max", "memory.high"}},
    {"memory",
     "/sys/fs/cgroup/memory",
     "memory.usage_in_bytes",
     "total_inactive_file",
     "total_active_file",
     {"memory.limit_in_bytes", NULL}},
};

/* True if one of the names between commas in s[0, n) is this. */
static bool lists(const char *s, size_t n, const char *name) {
    const size_t want = strlen(name);
    for (const char *end = s + n;;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        const size_t len = (size_t)((comma ? comma : end) - s);
        if (len == want && memcmp(s, name, want) == 0) return true;
        if (!comma) return false;
        s = comma + 1;
    }
}

/* The path in the line "number:controllers:path"; "", the root, where there is none, or where it
 * leads out of what this process may see. */
static void own_group(const char *root, const char *controller, char out[PATH_MAX]) {
    struct text t;
    out[0] = 0;
    if (!read_text(&t, root, "/proc/self/cgroup")) return;
    for (const char *line = t.s; *line;) {
        const size_t n = strcspn(line, "\n");
        const char *names = memchr(line, ':', n);
        const char *path = names ? memchr(names + 1, ':', n - (size_t)(names + 1 - line)) : NULL;
        if (path && lists(names + 1, (size_t)(path - names - 1), controller))
            snprintf(out, PATH_MAX, "%.*s", (int)(n - (size_t)(path + 1 - line)), path + 1);
        line += n + (line[n] == '\n');
    }
    if (strstr(out, "/..")) out[0] = 0;
}

static void bound_by_group(struct pl_available *a, const char *root, const struct hierarchy *h,
                           const char *group) {
    struct text t;
    uint64_t used = 0, inactive = 0, active = 0;
    if (read_text(&t, root, "%s%s/%s", h->mount, group, h->usage)) sscanf(t.s, "%" SCNu64, &used);
    if (read_text(&t, root, "%s%s/memory.stat", h->mount, group)) {
        if (!field(&t, h->inactive, &inactive)) inactive = 0;
        if (!field(&t, h->active, &active)) active = 0;
    }
    used = left_of(left_of(used, inactive), active);
    for (size_t i = 0; i < 2 && h->limits[i]; i++) {
        uint64_t limit; /* "max" is no number */
        if (read_text(&t, root, "%s%s/%s", h->mount, group, h->limits[i]) &&
            sscanf(t.s, "%" SCNu64, &limit) == 1)
            bound(a, left_of(limit, used), "memory limit of the cgroup");
    }
}

/* A group's memory is its ancestors' too. In a container the mount may begin at the group itself,
 * so that only a shorter path, or none, is there. */
static void bound_by_groups(struct pl_available *a, const char *root, const struct hierarchy *h) {
    char group[PATH_MAX];
    own_group(root, h->controller, group);
    for (char *slash = group;; *slash = 0) {
        bound_by_group(a, root, h, group);
        slash = strrchr(group, '/');
        if (!slash) return;
    }
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Bounds *a by a limit, of which the process has a part already. */
static void bound_by_limit(struct pl_available *a, const struct pl_available_from *from,
                           uint64_t limit, const char *counted, const char *source) {
    struct text t;
    uint64_t kib = 0;
    if (limit == RLIM_INFINITY) return;
    if (!read_text(&t, from->root, "/proc/self/status") || !field(&t, counted, &kib)) kib = 0;
    bound(a, left_of(limit, kib * 1024), source);
}

struct pl_available pl_available_read(const struct pl_available_from *from) {
    struct pl_available a = {from->machine_bytes, "memory of the machine", false};
    struct text t;
    uint64_t kib;
    /* MemAvailable: what the kernel can hand out without swapping, page cache it can drop included
     */
    if (read_text(&t, from->root, "/proc/meminfo") && field(&t, "MemAvailable", &kib))
        a = (struct pl_available){kib * 1024, "available memory", false};
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
        bound_by_groups(&a, from->root, &hierarchies[i]);
    bound_by_limit(&a, from, from->as_limit, "VmSize", "RLIMIT_AS");
    bound_by_limit(&a, from, from->data_limit, "VmData", "RLIMIT_DATA");
    return a;
}

static uint64_t limit_of(int resource) {
    struct rlimit r;
    return getrlimit((__rlimit_resource_t)resource, &r) == 0 ? r.rlim_cur : RLIM_INFINITY;
}

uint64_t pl_cpu_installed(void) {
    struct sysinfo s;
    return sysinfo(&s) == 0 ? (uint64_t)s.totalram * s.mem_unit : UINT64_MAX;
}

struct pl_available pl_cpu_available(void) {
    struct pl_available_from from = {.root = "",
                                     .machine_bytes = pl_cpu_installed(),
                                     .as_limit = limit_of(RLIMIT_AS),
                                     .data_limit = limit_of(RLIMIT_DATA)};
    return pl_available_read(&from);
}
