/* sim_launches.c - the kinds of launches there were, for the file that PLSIM_LAUNCHES names. A line
 * has threads and dynamic shared bytes of a block, and the kernel as PL_LAUNCH names it. */
#include "tests/cuda_sim/sim.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 512 };

static struct {
    const char *name;
    unsigned threads;
    size_t shared_bytes;
} kinds[MOST];
static int n_kinds;

static void write_launches(void) {
    FILE *f = fopen(getenv("PLSIM_LAUNCHES"), "w");
    if (!f) return;
    for (int i = 0; i < n_kinds; i++)
        fprintf(f, "%u %zu %s\n", kinds[i].threads, kinds[i].shared_bytes, kinds[i].name);
    fclose(f);
}

void plsim_note_launch(const struct plsim_launch *l) {
    static int wanted = -1; /* -1 = not known */
    const unsigned threads = l->block[0] * l->block[1] * l->block[2];
    if (wanted < 0) {
        const char *path = getenv("PLSIM_LAUNCHES");
        wanted = path && *path && atexit(write_launches) == 0;
    }
    if (!wanted) return;
    for (int i = 0; i < n_kinds; i++)
        if (kinds[i].name == l->name && kinds[i].threads == threads &&
            kinds[i].shared_bytes == l->shared_bytes)
            return;
    if (n_kinds == MOST) plsim_die("more than %d kinds of launches", MOST);
    kinds[n_kinds].name = l->name;
    kinds[n_kinds].threads = threads;
    kinds[n_kinds++].shared_bytes = l->shared_bytes;
}
