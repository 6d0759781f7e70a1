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
 *   FAKE_NVML_FAIL     nvmlInit_v2 fails */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A handle is the index and 1: never NULL. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (void *)(uintptr_t)(index + 1);
    return index < number("FAKE_NVML_GPUS", 1) ? 0 : 2; /* NVML_ERROR_INVALID_ARGUMENT */
}

static unsigned index_of(void *gpu) {
    return (unsigned)(uintptr_t)gpu - 1;
}

int nvmlDeviceGetName(void *gpu, char *out, unsigned size) {
    (void)gpu;
    return text("FAKE_NVML_NAME", "NVIDIA H100 80GB HBM3", out, size);
}

int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    snprintf(out, size, "GPU-fake-%u", index_of(gpu));
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out) {
    out->total = number("FAKE_NVML_TOTAL", 80ULL << 30) - ((unsigned long long)index_of(gpu) << 20);
    out->free = number("FAKE_NVML_FREE", out->total);
    out->used = out->total - out->free;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    int sm = (int)number("FAKE_NVML_SM", 90);
    (void)gpu;
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
