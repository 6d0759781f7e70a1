/* device_cpu.c - the processor and its memory as a device. */
#include "estimator/base/alloc.h"
#include "runtime/device/available.h"
#include "runtime/device/cpu/cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void cpu_close(struct pl_device *dev) {
    struct pl_cpu *cpu = pl_cpu_of(dev);
    if (!cpu) return;
    pl_pool_destroy(&cpu->pool);
    free(cpu);
    dev->state = NULL;
}

static pl_err cpu_open(struct pl_device *dev, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    struct pl_cpu_level level;
    struct pl_cpu *cpu = pl_calloc(1, sizeof *cpu);
    if (!cpu) return pl_host_oom(d, "the CPU device");
    dev->state = cpu;
    PL_TRY_GOTO(pl_cpu_level(!dev->set->only_fp32, &level, d), out);
    dev->kernels = dev->set->tables[level.number];
    cpu->level = level.name;
    PL_TRY_GOTO(pl_pool_create(dev->traits.threads, &cpu->pool, d), out);
out:
    if (err != PL_ERR_OK) cpu_close(dev);
    return err;
}

static pl_err cpu_free_bytes(struct pl_device *dev, uint64_t *out, struct pl_diag *d) {
    (void)dev;
    (void)d;
    *out = pl_cpu_available().bytes;
    return PL_ERR_OK;
}

static pl_err cpu_alloc(struct pl_device *dev, uint64_t bytes, void **out, struct pl_diag *d) {
    (void)dev;
    *out = pl_host_map(bytes);
    if (*out) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_DEVICE_OOM, "the system refused %" PRIu64 " bytes: %s", bytes,
                       strerror(errno));
}

static void cpu_release(struct pl_device *dev, void *p, uint64_t bytes) {
    (void)dev;
    pl_host_unmap(p, bytes);
}

/* No other device copies from it, so all its memory is as good as pinned. */
static pl_err cpu_host_alloc(struct pl_device *dev, uint64_t bytes, bool pinned, void **out,
                             struct pl_diag *d) {
    (void)pinned;
    return cpu_alloc(dev, bytes, out, d);
}

static void cpu_host_release(struct pl_device *dev, void *p, uint64_t bytes, bool pinned) {
    (void)pinned;
    cpu_release(dev, p, bytes);
}

static pl_err cpu_copy(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    (void)dev;
    if (bytes) memcpy(dst, src, bytes);
    return PL_ERR_OK;
}

/* "model name : ..." is x86's line. */
void pl_cpu_name(char out[PL_CPU_NAME_TEXT]) {
    char line[256];
    snprintf(out, PL_CPU_NAME_TEXT, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(out, PL_CPU_NAME_TEXT, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(f);
}

const struct pl_device_ops pl_device_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .host_alloc = cpu_host_alloc,
    .host_release = cpu_host_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .sync = NULL,
    .free_bytes = cpu_free_bytes,
};
