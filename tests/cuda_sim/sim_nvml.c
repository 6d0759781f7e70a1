/* sim_nvml.c - NVML of the emulation, as a shared library for PLIMSOLL_NVML: one GPU, with the
 * memory that the emulation has. Names, numbers and layouts are those of NVIDIA's NVML API
 * reference. Symbols of the emulation come from the executable that loads this. */
#include "tests/cuda_sim/sim.h"

#include <stdio.h>
#include <unistd.h>

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7
};

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
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

static int text(const char *value, char *out, unsigned size) {
    int n = snprintf(out, size, "%s", value);
    return n >= 0 && (unsigned)n < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

int nvmlInit_v2(void) {
    return NVML_SUCCESS;
}
int nvmlShutdown(void) {
    return NVML_SUCCESS;
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return text("580.65.06", out, size);
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    return *out = (unsigned)plsim_settings()->devices, NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (char *)&plsim_counters + index;
    return index < (unsigned)plsim_settings()->devices ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* It is in one piece. */
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    return (void)uuid, (void)out, NVML_ERROR_NOT_FOUND;
}
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) {
    return (void)gpu, (void)now, (void)next, NVML_ERROR_NOT_SUPPORTED;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **out) {
    return (void)gpu, (void)index, (void)out, NVML_ERROR_NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **out) {
    return (void)slice, (void)out, NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetName(void *gpu, char *out, unsigned size) {
    return (void)gpu, text(PLSIM_DEVICE_NAME, out, size);
}

int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    char name[32];
    int index = (int)((char *)gpu - (char *)&plsim_counters);
    snprintf(name, sizeof name, index ? "GPU-emulated-%d" : "GPU-emulated", index);
    return text(name, out, size);
}

int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out) {
    (void)gpu;
    if (plsim_settings()->integrated) return NVML_ERROR_NOT_SUPPORTED;
    out->total = plsim_settings()->memory_bytes;
    out->free = plsim_free_bytes();
    out->used = out->total - out->free;
    return NVML_SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    (void)gpu;
    *major = plsim_settings()->sm / 10;
    *minor = plsim_settings()->sm % 10;
    return NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *out) {
    (void)gpu;
    if (*count < 1) return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = plsim_own_bytes() > 0;
    out[0] = (struct process){.pid = (unsigned)getpid(), .used = plsim_own_bytes()};
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int code) {
    return code == NVML_SUCCESS ? "Success" : "Unknown Error";
}
