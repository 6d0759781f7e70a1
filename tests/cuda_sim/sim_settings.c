/* sim_settings.c - the environment of the emulation, the faults it asks for, and the last words. */
#include "tests/cuda_sim/sim.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plsim_counters plsim_counters;

static struct plsim_settings settings;
static bool is_read;
static uint64_t calls[PLSIM_SITES];

static const char *const site_names[PLSIM_SITES] = {
    "open",   "malloc",  "hostalloc", "launch",      "copy",   "sync",
    "matmul", "capture", "captured",  "instantiate", "upload", "replay"};

void plsim_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("plsim: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static uint64_t number(const char *name, const char *text, char **end) {
    uint64_t v = strtoull(text, end, 10);
    if (*end == text) plsim_die("%s: a number is missing at \"%s\"", name, text);
    return v;
}

static uint64_t setting(const char *name, uint64_t preset) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return preset;
    uint64_t v = number(name, text, &end);
    if (*end) plsim_die("%s: \"%s\" is not a number", name, text);
    return v;
}

/* bytes@calls */
static void read_neighbour(const char *text) {
    char *end;
    settings.neighbour_bytes = number("PLSIM_NEIGHBOUR", text, &end);
    if (*end != '@') plsim_die("PLSIM_NEIGHBOUR: bytes@calls, not \"%s\"", text);
    settings.neighbour_after = number("PLSIM_NEIGHBOUR", end + 1, &end);
}

/* site@n:error[,count=k|,forever] */
static void read_fault(const char *text) {
    for (int site = 0; site < PLSIM_SITES; site++) {
        size_t n = strlen(site_names[site]);
        char *end;
        if (strncmp(text, site_names[site], n) != 0 || text[n] != '@') continue;
        settings.fail[site].at = number("PLSIM_FAIL", text + n + 1, &end);
        if (*end != ':') break;
        settings.fail[site].error = (int)number("PLSIM_FAIL", end + 1, &end);
        settings.fail[site].count = 1;
        if (strncmp(end, ",count=", 7) == 0)
            settings.fail[site].count = number("PLSIM_FAIL", end + 7, &end);
        else if (strcmp(end, ",forever") == 0)
            settings.fail[site].count = UINT64_MAX, end += 8;
        if (*end == '\0') return;
        break;
    }
    plsim_die("PLSIM_FAIL: site@n:error[,count=k|,forever], not \"%s\"", text);
}

/* X(name): every counter, for the report. */
#define COUNTERS(X)                                                                                \
    X(mallocs)                                                                                     \
    X(failed_mallocs)                                                                              \
    X(frees)                                                                                       \
    X(host_mallocs)                                                                                \
    X(failed_host_mallocs)                                                                         \
    X(launches)                                                                                    \
    X(blocks)                                                                                      \
    X(switches)                                                                                    \
    X(copies)                                                                                      \
    X(memsets)                                                                                     \
    X(syncs)                                                                                       \
    X(captures)                                                                                    \
    X(graphs)                                                                                      \
    X(graph_launches)                                                                              \
    X(idle_syncs)                                                                                  \
    X(used_bytes)                                                                                  \
    X(peak_bytes)

static void report(void) {
    const char *path = getenv("PLSIM_REPORT");
    FILE *f = path && *path ? fopen(path, "w") : NULL;
    if (!f) return;
#define X(name) fprintf(f, "%s %llu\n", #name, (unsigned long long)plsim_counters.name);
    COUNTERS(X)
#undef X
    fclose(f);
}

/* xorshift64 (Marsaglia, 2003). Goes on where settings are read again: the same call twice then is
 * two orders. */
static uint64_t random_state;

uint64_t plsim_random(uint64_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* reverse, random, random:seed */
static void read_order(const char *text) {
    char *end = NULL;
    if (strcmp(text, "reverse") == 0) {
        settings.order = PLSIM_REVERSE;
        return;
    }
    if (strncmp(text, "random", 6) != 0 || (text[6] && text[6] != ':'))
        plsim_die("PLSIM_ORDER: reverse or random[:seed], not \"%s\"", text);
    settings.order = PLSIM_RANDOM;
    uint64_t seed = text[6] ? number("PLSIM_ORDER", text + 7, &end) : 1;
    if (random_state == 0) random_state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

static void read_settings(void) {
    const char *neighbour = getenv("PLSIM_NEIGHBOUR"), *fail = getenv("PLSIM_FAIL");
    const char *order = getenv("PLSIM_ORDER"), *streams = getenv("PLSIM_STREAMS");
    memset(&settings, 0, sizeof settings);
    settings.memory_bytes = setting("PLSIM_MEMORY_BYTES", UINT64_C(8) << 30);
    settings.context_bytes = setting("PLSIM_CONTEXT_BYTES", 0);
    settings.graph_node_bytes = setting("PLSIM_GRAPH_NODE_BYTES", 0);
    settings.library_bytes = setting("PLSIM_LIBRARY_BYTES", 0);
    settings.driver = (int)setting("PLSIM_DRIVER", CUDART_VERSION);
    settings.integrated = setting("PLSIM_INTEGRATED", 0) != 0;
    settings.sm = (int)setting("PLSIM_SM", 90);
    settings.sm_count = (int)setting("PLSIM_SMS", 132);
    settings.devices = (int)setting("PLSIM_DEVICES", 1);
    if (order && *order) read_order(order);
    if (streams && *streams && strcmp(streams, "late") != 0)
        plsim_die("PLSIM_STREAMS: late, not \"%s\"", streams);
    settings.late = streams && *streams;
    if (neighbour && *neighbour) read_neighbour(neighbour);
    if (fail && *fail) read_fault(fail);
}

const struct plsim_settings *plsim_settings(void) {
    static bool reports;
    if (is_read) return &settings;
    is_read = true;
    read_settings();
    /* Tests take and free megabytes at every call: keeping the pages is four times as fast. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (!reports) reports = atexit(report) == 0;
    return &settings;
}

void plsim_settings_forget(void) {
    uint64_t used = plsim_counters.used_bytes;
    is_read = false;
    memset(calls, 0, sizeof calls);
    plsim_counters = (struct plsim_counters){.used_bytes = used, .peak_bytes = used};
}

int plsim_injected(enum plsim_site site) {
    const struct plsim_settings *s = plsim_settings();
    uint64_t call = ++calls[site], at = s->fail[site].at;
    if (at == 0 || call < at || call - at >= s->fail[site].count) return 0;
    return s->fail[site].error;
}
