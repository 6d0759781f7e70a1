/* sim_runtime.c - errors, devices, streams, events, function attributes. */
#include "tests/cuda_sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- errors ---- */

static cudaError_t last = cudaSuccess, sticky = cudaSuccess;

/* The context is lost after these: every later call returns the same error until the process ends
 * (CUDA Runtime API, cudaError_t: "the process must be terminated and relaunched"). */
static bool spoils_context(cudaError_t e) {
    static const cudaError_t all[] = {
        cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorContained,
        cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,       cudaErrorAssert,
        cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
        cudaErrorTensorMemoryLeak,    cudaErrorExternalDevice,      cudaErrorUnknown};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == e) return true;
    return false;
}

cudaError_t plsim_fail(cudaError_t e) {
    if (sticky == cudaSuccess && spoils_context(e)) sticky = e;
    return last = e;
}

cudaError_t plsim_sticky(void) {
    (void)plsim_settings();
    return sticky;
}

cudaError_t cudaPeekAtLastError(void) {
    return sticky != cudaSuccess ? sticky : last;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}

const char *cudaGetErrorName(cudaError_t e) {
    static const struct {
        cudaError_t e;
        const char *name;
    } all[] = {
#define X(name, number) {name, #name},
        PLSIM_ERRORS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].e == e) return all[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e) {
    if (e == cudaSuccess) return "no error";
    if (e == cudaErrorMemoryAllocation) return "out of memory";
    if (e == cudaErrorIllegalAddress) return "an illegal memory access was encountered";
    return cudaGetErrorName(e);
}

void plsim_restart(void) {
    last = sticky = cudaSuccess;
    plsim_drain_all();
    plsim_memory_restart();
    plsim_settings_forget();
}

/* ---- device ---- */

enum { SHARED_PRESET = 49152 };

/* Bytes a block may opt into: CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability". */
static int shared_limit(void) {
    static const struct {
        int sm, bytes;
    } all[] = {{75, 65536}, {80, 166912}, {87, 166912}, {90, 232448}, {100, 232448}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].sm == plsim_settings()->sm) return all[i].bytes;
    return 101376; /* 8.6, 8.9, 12.0 */
}

static cudaError_t store(int *out, int value) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = value;
    return cudaSuccess;
}

static cudaError_t check_device(int device) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    bool is_there = device >= 0 && device < plsim_settings()->devices;
    return is_there ? cudaSuccess : plsim_fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int *out) {
    return store(out, plsim_settings()->driver);
}
cudaError_t cudaRuntimeGetVersion(int *out) {
    return store(out, CUDART_VERSION);
}
cudaError_t cudaGetDeviceCount(int *out) {
    plsim_start();
    int injected = plsim_injected(PLSIM_OPEN);
    return injected ? plsim_fail((cudaError_t)injected) : store(out, plsim_settings()->devices);
}
/* A process takes one of them, and all memory is on it. */
static int current;
cudaError_t cudaGetDevice(int *out) {
    return store(out, current);
}
cudaError_t cudaSetDevice(int device) {
    cudaError_t e = check_device(device);
    if (e == cudaSuccess) current = device;
    return e;
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
    return (void)flags, plsim_sticky();
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    return check_device(device);
}

cudaError_t cudaDeviceReset(void) {
    return plsim_sticky();
}

/* Kernels, and graphs of them, that were queued so far. */
static uint64_t queued(void) {
    return plsim_counters.launches + plsim_counters.graph_launches;
}

/* Waits for what was queued when `before` was all. */
static cudaError_t synchronize(uint64_t before) {
    int injected = plsim_injected(PLSIM_SYNC);
    cudaError_t e = plsim_sticky();
    plsim_counters.syncs++;
    plsim_counters.idle_syncs += before == queued();
    if (e != cudaSuccess) return e;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    return injected ? plsim_fail((cudaError_t)injected) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    plsim_drain_all();
    return synchronize(queued());
}

/* Numbers of an H100 SXM, compute capability and multiprocessors as the settings say. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    cudaError_t e = check_device(device);
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    const struct plsim_settings *s = plsim_settings();
    *out = (struct cudaDeviceProp){
        .uuid = {{(char)0xE0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, (char)device}},
        .integrated = s->integrated,
        .name = PLSIM_DEVICE_NAME,
        .totalGlobalMem = s->memory_bytes,
        .sharedMemPerBlock = 49152,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {INT32_MAX, 65535, 65535},
        .totalConstMem = 65536,
        .major = s->sm / 10,
        .minor = s->sm % 10,
        .multiProcessorCount = s->sm_count,
        .unifiedAddressing = 1,
        .memoryBusWidth = 5120,
        .l2CacheSize = 52428800,
        .maxThreadsPerMultiProcessor = 2048,
        .sharedMemPerMultiprocessor = 233472,
        .sharedMemPerBlockOptin = (size_t)shared_limit(),
        .regsPerMultiprocessor = 65536,
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device) {
    const struct plsim_settings *s = plsim_settings();
    const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } all[] = {{cudaDevAttrMaxThreadsPerBlock, 1024},
               {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
               {cudaDevAttrWarpSize, 32},
               {cudaDevAttrClockRate, 1980000},
               {cudaDevAttrMultiProcessorCount, s->sm_count},
               {cudaDevAttrIntegrated, s->integrated},
               {cudaDevAttrEccEnabled, 0},
               {cudaDevAttrPciBusId, 0},
               {cudaDevAttrPciDeviceId, 0},
               {cudaDevAttrMemoryClockRate, 2619000},
               {cudaDevAttrGlobalMemoryBusWidth, 5120},
               {cudaDevAttrL2CacheSize, 52428800},
               {cudaDevAttrPciDomainId, 0},
               {cudaDevAttrComputeCapabilityMajor, s->sm / 10},
               {cudaDevAttrComputeCapabilityMinor, s->sm % 10},
               {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
               {cudaDevAttrMaxSharedMemoryPerBlockOptin, shared_limit()}};
    cudaError_t e = check_device(device);
    if (e != cudaSuccess) return e;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].attribute == attribute) return store(out, all[i].value);
    return plsim_fail(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
    static const char id[] = "0000:00:00.0";
    cudaError_t e = check_device(device);
    if (e != cudaSuccess) return e;
    if (!out || bytes < (int)sizeof id) return plsim_fail(cudaErrorInvalidValue);
    memcpy(out, id, sizeof id);
    return cudaSuccess;
}

/* ---- streams and events: everything has happened when the call returns ---- */

/* The priorities of a GPU; the smaller number is the greater one. */
enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

struct CUstream_st {
    unsigned flags;
    int priority;
};
struct CUevent_st {
    unsigned flags;
    struct timespec at;
    uint64_t queued; /* before it was recorded */
    cudaStream_t stream;
    uint64_t work;                  /* number of the last that it stands for */
    struct plsim_captured captured; /* in a capture: what it stands for never runs by itself */
};

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    *least = LEAST_PRIORITY;
    *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    plsim_need_context();
    *out = malloc(sizeof **out);
    if (!*out) return plsim_fail(cudaErrorMemoryAllocation);
    (*out)->flags = flags;
    (*out)->priority = priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out) {
    *out = stream ? stream->priority : LEAST_PRIORITY;
    return plsim_sticky();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, LEAST_PRIORITY);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithFlags(out, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    plsim_drain(stream, UINT64_MAX);
    free(stream);
    return plsim_sticky();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (!plsim_captures(stream)) plsim_drain(stream, UINT64_MAX);
    return synchronize(queued());
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    cudaError_t e = plsim_captures(stream) ? plsim_forbidden() : cudaSuccess;
    return e == cudaSuccess ? plsim_sticky() : e;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (!event) return plsim_fail(cudaErrorInvalidResourceHandle);
    if (event->captured.capture || plsim_captures(stream))
        return plsim_capture_wait(stream, &event->captured);
    plsim_drain(event->stream, event->work); /* early, which is legal too */
    return plsim_sticky();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = malloc(sizeof **out);
    if (!*out) return plsim_fail(cudaErrorMemoryAllocation);
    **out = (struct CUevent_st){.flags = flags};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return plsim_sticky();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return plsim_fail(cudaErrorInvalidResourceHandle);
    (void)clock_gettime(CLOCK_MONOTONIC, &event->at);
    event->queued = queued();
    event->stream = stream;
    event->work = plsim_submitted();
    event->captured = plsim_captured(stream);
    return plsim_sticky();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return plsim_fail(cudaErrorInvalidResourceHandle);
    if (event->captured.capture) return plsim_fail(cudaErrorCapturedEvent);
    plsim_drain(event->stream, event->work);
    return synchronize(event->queued);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event) return plsim_fail(cudaErrorInvalidResourceHandle);
    if (event->captured.capture) return plsim_fail(cudaErrorCapturedEvent);
    cudaError_t e = plsim_forbidden();
    return e == cudaSuccess ? plsim_sticky() : e;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!ms || !from || !to) return plsim_fail(cudaErrorInvalidValue);
    if ((from->flags | to->flags) & cudaEventDisableTiming)
        return plsim_fail(cudaErrorInvalidResourceHandle);
    *ms = (float)(to->at.tv_sec - from->at.tv_sec) * 1e3f +
          (float)(to->at.tv_nsec - from->at.tv_nsec) * 1e-6f;
    return plsim_sticky();
}

/* ---- functions ---- */

enum { MAX_OPT_INS = 512 };

static struct {
    const void *kernel;
    int bytes;
} opt_ins[MAX_OPT_INS];
static int n_opt_ins;

size_t plsim_shared_limit(const void *kernel) {
    for (int i = 0; i < n_opt_ins; i++)
        if (opt_ins[i].kernel == kernel) return (size_t)opt_ins[i].bytes;
    return SHARED_PRESET;
}

/* A program that begins to load kernels by hand loads them all. */
void plsim_check_loaded(const char *name, const void *kernel) {
    for (int i = 0; i < n_opt_ins; i++)
        if (opt_ins[i].kernel == kernel) return;
    if (n_opt_ins > 0) plsim_die("kernel %s was not loaded before it was launched", name);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!kernel) return plsim_fail(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > shared_limit())
        return plsim_fail(cudaErrorInvalidValue);
    int i = 0;
    while (i < n_opt_ins && opt_ins[i].kernel != kernel)
        i++;
    if (i == MAX_OPT_INS) plsim_die("more than %d kernels with large shared memory", MAX_OPT_INS);
    if (i == n_opt_ins) n_opt_ins++;
    opt_ins[i].kernel = kernel;
    opt_ins[i].bytes = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!out || !kernel) return plsim_fail(cudaErrorInvalidDeviceFunction);
    *out = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = 1024,
        .numRegs = 32,
        .ptxVersion = plsim_settings()->sm,
        .binaryVersion = plsim_settings()->sm,
        .maxDynamicSharedSizeBytes = (int)plsim_shared_limit(kernel),
        .preferredShmemCarveout = -1,
    };
    return cudaSuccess;
}
