/* cmd_devices.c - `plimsoll devices`: what this machine could train on. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/units.h"
#include "estimator/card/cards.h"
#include "runtime/device/available.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cuda/gpu_query.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS_MAX 64

struct machine {
    char cpu[PL_CPU_NAME_TEXT];
    struct pl_cpu_level level;
    uint32_t cores;
    uint64_t total_bytes, available_bytes; /* 0: unknown */
    struct pl_gpu gpus[GPUS_MAX];
    uint32_t n_gpus;
    struct pl_diag why_no_gpu;
};

/* NO_DEVICE: as pl_cpu_level(). */
static pl_err read_machine(struct machine *m, struct pl_diag *d) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    pl_cpu_name(m->cpu);
    PL_TRY(pl_cpu_level(true, &m->level, d));
    m->cores = pl_cpu_count();
    if (pages > 0 && page > 0) m->total_bytes = (uint64_t)pages * (uint64_t)page;
    m->available_bytes = pl_cpu_available().bytes;
    while (m->n_gpus < GPUS_MAX && pl_gpu_query(&pl_device_cuda, m->n_gpus, &m->gpus[m->n_gpus],
                                                m->n_gpus ? NULL : &m->why_no_gpu) == PL_ERR_OK)
        m->n_gpus++;
    return PL_ERR_OK;
}

/* The branch of the driver that this build needs, where the GPU has an older one; else 0. A driver
 * that CUDA has answered with is new enough. */
static uint32_t newer_driver(const struct pl_gpu *g) {
    const unsigned long branch = strtoul(g->driver, NULL, 10);
    return branch && branch < pl_device_cuda.oldest_driver ? pl_device_cuda.oldest_driver : 0;
}

static json_t *gpu_json(uint32_t ordinal, const struct pl_gpu *g) {
    char device[16], capability[16];
    const struct pl_card *c = pl_card_find(g->name);
    snprintf(device, sizeof device, "cuda:%u", ordinal);
    snprintf(capability, sizeof capability, "%u.%u", g->sm / 10, g->sm % 10);
    return json_pack("{s:s, s:o, s:o, s:s, s:s, s:I, s:I, s:s?, s:b}", "device", device, "name",
                     pl_cli_json_string(g->name), "uuid", pl_cli_json_string(g->uuid), "driver",
                     g->driver, "compute_capability", capability, "total_bytes",
                     (json_int_t)g->total_bytes, "free_bytes", (json_int_t)g->free_bytes, "card",
                     c ? c->name : NULL, "trains", (int)(g->sm >= PL_CARD_OLDEST_SM));
}

static json_t *machine_json(const struct machine *m) {
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < m->n_gpus; i++)
        if (json_array_append_new(gpus, gpu_json(i, &m->gpus[i])) != 0) {
            json_decref(gpus);
            return NULL;
        }
    return json_pack("{s:{s:o, s:s, s:I, s:I, s:I}, s:o, s:s?, s:b}", "cpu", "name",
                     pl_cli_json_string(m->cpu), "kernels", m->level.name, "cores",
                     (json_int_t)m->cores, "total_bytes", (json_int_t)m->total_bytes,
                     "available_bytes", (json_int_t)m->available_bytes, "gpus", gpus,
                     "no_gpu_because", m->n_gpus ? NULL : m->why_no_gpu.message, "cuda_built",
                     pl_device_cuda.missing ? 0 : 1);
}

static void print_machine(const struct machine *m) {
    char total[PL_BYTES_TEXT], left[PL_BYTES_TEXT];
    printf("cpu     %s, %s kernels, %u core%s, %s, %s available\n", m->cpu, m->level.name, m->cores,
           m->cores == 1 ? "" : "s", pl_bytes_text(m->total_bytes, total),
           pl_bytes_text(m->available_bytes, left));
    for (uint32_t i = 0; i < m->n_gpus; i++) {
        const struct pl_gpu *g = &m->gpus[i];
        const struct pl_card *c = pl_card_find(g->name);
        printf("cuda:%-2u %s, %s, %s free, compute capability %u.%u, driver %s%s%s\n", i, g->name,
               pl_bytes_text(g->total_bytes, total), pl_bytes_text(g->free_bytes, left), g->sm / 10,
               g->sm % 10, g->driver, c ? ", --gpu " : "", c ? c->name : "");
        if (newer_driver(g))
            printf("        needs driver %u or later, or NVIDIA's package for compatibility\n",
                   newer_driver(g));
    }
    if (!m->n_gpus) printf("cuda    none: %s\n", m->why_no_gpu.message);
    if (pl_device_cuda.missing) printf("        %s\n", pl_device_cuda.missing);
}

int pl_cmd_devices(const struct pl_cli *cli) {
    static struct machine m;
    struct pl_diag d = {0};
    if (read_machine(&m, &d) != PL_ERR_OK) return pl_cli_fail(cli, &d);
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        print_machine(&m);
        return 0;
    }
    return pl_cli_print_json(machine_json(&m), &d) == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}
