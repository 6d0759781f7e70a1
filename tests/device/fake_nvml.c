/* fake_nvml.c - a management library of GPUs that are not there, for PLIMSOLL_NVML.
 *
 * Names and results are those of NVIDIA's NVML API reference. Environment:
 *   FAKE_NVML_GPUS     how many (1); the rest describes every one of them, but that GPU i has i MiB
 *                      less than the total and the UUID GPU-fake-i
 *   FAKE_NVML_NAME     "NVIDIA H100 80GB HBM3"
 *   FAKE_NVML_TOTAL, FAKE_NVML_FREE   bytes (80 GiB, and all of it)
 *   FAKE_NVML_SM       compute capability times ten (90)
 *   FAKE_NVML_PROCESS  bytes the calling process holds; unset: the driver does not tell
 *   FAKE_NVML_DRIVER   "580.65.06"
 *   FAKE_NVML_MIG      every GPU is cut into so many slices: slice k of GPU i has the UUID
 *                      MIG-fake-i-k and a sixteenth of the memory, of which only slices tell
 *   FAKE_NVML_FAIL     nvmlInit_v2 fails */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *out, unsigned size);
int nvmlDeviceGetCount_v2(unsigned *out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next);
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **out);
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **out);
int nvmlDeviceGetName(void *gpu, char *out, unsigned size);
int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size);
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out);
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor);
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out);
const char *nvmlErrorString(int code);

static unsigned long long number(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static int text(const char *name, const char *otherwise, char *out, unsigned size) {
    const char *value = getenv(name);
    snprintf(out, size, "%s", value ? value : otherwise);
    return 0;
}

int nvmlInit_v2(void) {
    return getenv("FAKE_NVML_FAIL") ? 9 : 0; /* NVML_ERROR_DRIVER_NOT_LOADED */
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return text("FAKE_NVML_DRIVER", "580.65.06", out, size);
}

int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = (unsigned)number("FAKE_NVML_GPUS", 1);
    return 0;
}

enum { NVML_INVALID = 2, NVML_NOT_SUPPORTED = 3, NVML_NO_PERMISSION = 4, NVML_NOT_FOUND = 6 };
enum { SLICE = 1 << 8 }; /* in a handle: number of the slice and 1, times SLICE */

/* A handle is the index and 1: never NULL. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (void *)(uintptr_t)(index + 1);
    return index < number("FAKE_NVML_GPUS", 1) ? 0 : 2; /* NVML_ERROR_INVALID_ARGUMENT */
}

static unsigned index_of(void *gpu) {
    return (unsigned)((uintptr_t)gpu % SLICE) - 1;
}

/* 0 = a whole GPU. */
static unsigned slice_of(void *gpu) {
    return (unsigned)((uintptr_t)gpu / SLICE);
}

int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) {
    if (slice_of(gpu)) return NVML_INVALID;
    *now = *next = getenv("FAKE_NVML_MIG") ? 1 : 0;
    return number("FAKE_NVML_SM", 90) < 80 ? NVML_NOT_SUPPORTED : 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **out) {
    if (slice_of(gpu) || index >= number("FAKE_NVML_MIG", 0)) return NVML_NOT_FOUND;
    *out = (void *)((uintptr_t)gpu + (index + 1) * SLICE);
    return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **out) {
    if (!slice_of(slice)) return NVML_INVALID;
    *out = (void *)((uintptr_t)slice % SLICE);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    char other[96];
    for (unsigned i = 0; i < number("FAKE_NVML_GPUS", 1); i++)
        for (unsigned k = 0; k < number("FAKE_NVML_MIG", 0); k++) {
            void *gpu = (void *)(uintptr_t)(i + 1);
            if (nvmlDeviceGetMigDeviceHandleByIndex(gpu, k, out) != 0) return NVML_NOT_FOUND;
            nvmlDeviceGetUUID(*out, other, sizeof other);
            if (strcmp(uuid, other) == 0) return 0;
        }
    return NVML_NOT_FOUND;
}

int nvmlDeviceGetName(void *gpu, char *out, unsigned size) {
    (void)gpu;
    return text("FAKE_NVML_NAME", "NVIDIA H100 80GB HBM3", out, size);
}

int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    if (slice_of(gpu))
        snprintf(out, size, "MIG-fake-%u-%u", index_of(gpu), slice_of(gpu) - 1);
    else
        snprintf(out, size, "GPU-fake-%u", index_of(gpu));
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out) {
    out->total = number("FAKE_NVML_TOTAL", 80ULL << 30) - ((unsigned long long)index_of(gpu) << 20);
    if (getenv("FAKE_NVML_MIG") && !slice_of(gpu)) return NVML_NO_PERMISSION;
    if (slice_of(gpu)) out->total /= 16;
    out->free = number("FAKE_NVML_FREE", out->total);
    out->used = out->total - out->free;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    int sm = (int)number("FAKE_NVML_SM", 90);
    if (slice_of(gpu)) return NVML_NOT_SUPPORTED;
    *major = sm / 10;
    *minor = sm % 10;
    return 0;
}

/* A neighbour stands in front of us. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out) {
    (void)gpu;
    if (!getenv("FAKE_NVML_PROCESS")) {
        *count = 0;
        return 0;
    }
    if (*count < 2) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    out[0] = (struct process){.pid = 1, .used = 123456789};
    out[1] = (struct process){.pid = (unsigned)getpid(), .used = number("FAKE_NVML_PROCESS", 0)};
    *count = 2;
    return 0;
}

const char *nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
