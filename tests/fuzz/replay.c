/* replay.c - a fuzz target as a plain test: replay NAME RUNS FILE-OR-DIRECTORY...
 *
 * Calls the target with nothing, with every file, then with RUNS mutations of them, always the same
 * ones. PLIMSOLL_FUZZ_RUNS takes the place of RUNS, PLIMSOLL_FUZZ_SEED starts another sequence. On
 * a crash, or an input that takes longer than SECONDS, the input is left in NAME.crash. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/hang.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS      HANG_SECONDS
#define MEMORY_LIMIT (UINT64_C(1) << 30)

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INSTRUMENTED 1
#endif
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif

static uint8_t input[FUZZ_MAX_BYTES];
static size_t input_size;
static char crash_file[96];

/* --- crashing inputs ------------------------------------------------------------------------ */

static void say(const char *s) {
    ssize_t ignored = write(STDERR_FILENO, s, strlen(s));
    (void)ignored;
}

static void on_crash(int number) {
    int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (number == SIGALRM) say("an input takes too long\n");
    if (fd >= 0 && write(fd, input, input_size) == (ssize_t)input_size) {
        say("the input is in ");
        say(crash_file);
        say("\n");
    }
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void catch_crashes(const char *name) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    snprintf(crash_file, sizeof crash_file, "%s.crash", name);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on_crash);
}

/* A reader that asks for memory out of proportion is told that there is none. The sanitizers need
 * the address space for themselves. */
static void limit_memory(void) {
    const struct rlimit limit = {MEMORY_LIMIT, MEMORY_LIMIT};
    if (!INSTRUMENTED) FUZZ_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* --- inputs ---------------------------------------------------------------------------------- */

static void add_file(struct fuzz_corpus *c, const char *path) {
    uint8_t data[FUZZ_MAX_BYTES];
    FILE *f = fopen(path, "rb");
    FUZZ_CHECK(f != NULL);
    size_t n = fread(data, 1, sizeof data, f);
    bool whole = fgetc(f) == EOF;
    fclose(f);
    if (!whole) return; /* a large file of another suite */
    c->inputs = realloc(c->inputs, (c->n + 1) * sizeof *c->inputs);
    FUZZ_CHECK(c->inputs != NULL);
    struct fuzz_input *in = &c->inputs[c->n++];
    *in = (struct fuzz_input){malloc(n + 1), n};
    FUZZ_CHECK(in->data != NULL);
    memcpy(in->data, data, n);
}

static void add_path(struct fuzz_corpus *c, const char *path) {
    struct stat st;
    struct dirent **entries;
    FUZZ_CHECK(stat(path, &st) == 0);
    if (!S_ISDIR(st.st_mode)) {
        add_file(c, path);
        return;
    }
    int n = scandir(path, &entries, NULL, alphasort);
    FUZZ_CHECK(n >= 0);
    for (int i = 0; i < n; i++) {
        char inner[1024];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') add_path(c, inner);
        free(entries[i]);
    }
    free(entries);
}

static void corpus_finish(struct fuzz_corpus *c) {
    for (size_t i = 0; i < c->n; i++)
        free(c->inputs[i].data);
    free(c->inputs);
}

/* --- runs ------------------------------------------------------------------------------------ */

/* Runs on a copy of exactly its size, so that a read beyond the end is detected. */
static void run_once(void) {
    uint8_t *exact = malloc(input_size ? input_size : 1);
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, input, input_size);
    alarm(SECONDS);
    FUZZ_CHECK(LLVMFuzzerTestOneInput(exact, input_size) == 0);
    alarm(0);
    free(exact);
}

static void set_input(const struct fuzz_input *in) {
    memcpy(input, in->data, in->n);
    input_size = in->n;
}

static uint64_t number_of(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t hash(const char *s) { /* FNV-1a */
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001B3);
    return h;
}

int main(int argc, char *argv[]) {
    struct fuzz_corpus corpus = {0};
    FUZZ_CHECK(argc > 3);
    catch_crashes(argv[1]);
    limit_memory();
    for (int i = 3; i < argc; i++)
        add_path(&corpus, argv[i]);
    FUZZ_CHECK(corpus.n > 0);
    uint64_t runs = number_of("PLIMSOLL_FUZZ_RUNS", strtoull(argv[2], NULL, 10));
    uint64_t state = hash(argv[1]) + number_of("PLIMSOLL_FUZZ_SEED", 0);
    input_size = 0;
    run_once();
    for (size_t i = 0; i < corpus.n; i++) {
        set_input(&corpus.inputs[i]);
        run_once();
    }
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t seed = fuzz_random(&state);
        set_input(&corpus.inputs[seed % corpus.n]);
        input_size = fuzz_mutate(input, input_size, sizeof input, &corpus, seed);
        run_once();
    }
    printf("%s: %zu inputs, %llu mutations of them\n", argv[1], corpus.n, (unsigned long long)runs);
    corpus_finish(&corpus);
    return 0;
}
