/* cuda_runtime.h - stands in for NVIDIA's header of this name, where there is no CUDA toolkit.
 *
 * The CUDA back-end is compiled against this directory and linked with the emulation, which runs
 * it on the host: device memory is host memory, streams and events are immediate, the threads of a
 * block are fibres (sim_block.c). Only what the back-end uses is here; names, values and behaviour
 * are those of the CUDA Runtime API reference manual. Valid C and C++; device code is C++ only
 * (plsim_device.h). Environment, read when the first function is called:
 *   PLSIM_MEMORY_BYTES    memory of the device, default 8 GiB
 *   PLSIM_CONTEXT_BYTES   what the context takes of it once there is one, default 0; twice
 *                         that unless CUDA_MODULE_LOADING is LAZY
 *   PLSIM_NEIGHBOUR       bytes@n: another process takes that much after n calls of cudaMalloc or
 *                         cudaMemGetInfo (it gets as much as is free at that time)
 *   PLSIM_FAIL            site@n:error[,count=k|,forever]: the n-th call at that site fails; sites
 *                         open (cudaGetDeviceCount), malloc, hostalloc, launch, copy, sync, matmul,
 *                         capture, captured, instantiate, upload, replay; errors that spoil a
 *                         context (700, 719, ...) stay
 *   PLSIM_GRAPH_NODE_BYTES what a graph takes of the device for each of its kernels, default 0
 *   PLSIM_LIBRARY_BYTES   what cuBLASLt takes of the device at its first product, default 0
 *   PLSIM_DRIVER          what cudaDriverGetVersion() answers, default CUDART_VERSION
 *   PLSIM_INTEGRATED=1    the GPU has the memory of the host, and NVML cannot tell how much
 *   PLSIM_DEVICES         GPUs, default 1; a process uses one of them, and has its memory to itself
 *   PLSIM_SM, PLSIM_SMS   compute capability times ten (90), multiprocessors (132)
 *   PLSIM_ORDER           reverse: threads and blocks start in reverse order; random[:seed]: they
 *                         start, and go on after barriers, in an order that never comes again.
 *                         What depends on the order differs
 *   PLSIM_STREAMS=late    what a stream is given happens when the host waits for it, not before
 *   PLSIM_LAUNCHES        file that receives the kinds of launches when the process ends
 *   PLSIM_REPORT          file that receives the counters of sim.h when the process ends */
#ifndef PL_TESTS_CUDA_SIM_CUDA_RUNTIME_H
#define PL_TESTS_CUDA_SIM_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION  13000
#define PLSIM_EMULATION 1

#ifdef __cplusplus
extern "C" {
#endif

/* Error numbers of driver_types.h. X(name, number) */
#define PLSIM_ERRORS(X)                                                                            \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorInvalidValue, 1)                                                                    \
    X(cudaErrorMemoryAllocation, 2)                                                                \
    X(cudaErrorInitializationError, 3)                                                             \
    X(cudaErrorCudartUnloading, 4)                                                                 \
    X(cudaErrorInvalidConfiguration, 9)                                                            \
    X(cudaErrorInvalidPitchValue, 12)                                                              \
    X(cudaErrorInvalidSymbol, 13)                                                                  \
    X(cudaErrorInvalidHostPointer, 16)                                                             \
    X(cudaErrorInvalidDevicePointer, 17)                                                           \
    X(cudaErrorInvalidMemcpyDirection, 21)                                                         \
    X(cudaErrorStubLibrary, 34)                                                                    \
    X(cudaErrorInsufficientDriver, 35)                                                             \
    X(cudaErrorCallRequiresNewerDriver, 36)                                                        \
    X(cudaErrorDevicesUnavailable, 46)                                                             \
    X(cudaErrorMissingConfiguration, 52)                                                           \
    X(cudaErrorInvalidDeviceFunction, 98)                                                          \
    X(cudaErrorNoDevice, 100)                                                                      \
    X(cudaErrorInvalidDevice, 101)                                                                 \
    X(cudaErrorStartupFailure, 127)                                                                \
    X(cudaErrorInvalidKernelImage, 200)                                                            \
    X(cudaErrorDeviceUninitialized, 201)                                                           \
    X(cudaErrorNoKernelImageForDevice, 209)                                                        \
    X(cudaErrorECCUncorrectable, 214)                                                              \
    X(cudaErrorInvalidPtx, 218)                                                                    \
    X(cudaErrorNvlinkUncorrectable, 220)                                                           \
    X(cudaErrorUnsupportedPtxVersion, 222)                                                         \
    X(cudaErrorContained, 226)                                                                     \
    X(cudaErrorOperatingSystem, 304)                                                               \
    X(cudaErrorInvalidResourceHandle, 400)                                                         \
    X(cudaErrorIllegalState, 401)                                                                  \
    X(cudaErrorSymbolNotFound, 500)                                                                \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaErrorIllegalAddress, 700)                                                                \
    X(cudaErrorLaunchOutOfResources, 701)                                                          \
    X(cudaErrorLaunchTimeout, 702)                                                                 \
    X(cudaErrorContextIsDestroyed, 709)                                                            \
    X(cudaErrorAssert, 710)                                                                        \
    X(cudaErrorHostMemoryAlreadyRegistered, 712)                                                   \
    X(cudaErrorHostMemoryNotRegistered, 713)                                                       \
    X(cudaErrorHardwareStackError, 714)                                                            \
    X(cudaErrorIllegalInstruction, 715)                                                            \
    X(cudaErrorMisalignedAddress, 716)                                                             \
    X(cudaErrorInvalidAddressSpace, 717)                                                           \
    X(cudaErrorInvalidPc, 718)                                                                     \
    X(cudaErrorLaunchFailure, 719)                                                                 \
    X(cudaErrorTensorMemoryLeak, 721)                                                              \
    X(cudaErrorNotPermitted, 800)                                                                  \
    X(cudaErrorNotSupported, 801)                                                                  \
    X(cudaErrorSystemNotReady, 802)                                                                \
    X(cudaErrorSystemDriverMismatch, 803)                                                          \
    X(cudaErrorCompatNotSupportedOnDevice, 804)                                                    \
    X(cudaErrorMpsConnectionFailed, 805)                                                           \
    X(cudaErrorMpsRpcFailure, 806)                                                                 \
    X(cudaErrorMpsServerNotReady, 807)                                                             \
    X(cudaErrorMpsMaxClientsReached, 808)                                                          \
    X(cudaErrorMpsMaxConnectionsReached, 809)                                                      \
    X(cudaErrorMpsClientTerminated, 810)                                                           \
    X(cudaErrorStreamCaptureUnsupported, 900)                                                      \
    X(cudaErrorStreamCaptureInvalidated, 901)                                                      \
    X(cudaErrorStreamCaptureUnjoined, 904)                                                         \
    X(cudaErrorStreamCaptureIsolation, 905)                                                        \
    X(cudaErrorStreamCaptureImplicit, 906)                                                         \
    X(cudaErrorCapturedEvent, 907)                                                                 \
    X(cudaErrorTimeout, 909)                                                                       \
    X(cudaErrorExternalDevice, 911)                                                                \
    X(cudaErrorFunctionNotLoaded, 913)                                                             \
    X(cudaErrorUnknown, 999)

typedef enum cudaError {
#define X(name, number) name = number,
    PLSIM_ERRORS(X)
#undef X
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrEccEnabled = 32,
    cudaDevAttrPciBusId = 33,
    cudaDevAttrPciDeviceId = 34,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrPciDomainId = 50,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

enum {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaDeviceScheduleAuto = 0,
    cudaDeviceScheduleSpin = 1,
    cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4
};

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess,
    cudaDriverEntryPointSymbolNotFound,
    cudaDriverEntryPointVersionNotSufficent
};
enum { cudaEnableDefault = 0 };

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUuuid_st {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    size_t totalConstMem;
    int major, minor, multiProcessorCount, integrated, ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID, unifiedAddressing, memoryBusWidth, l2CacheSize;
    int maxThreadsPerMultiProcessor;
    size_t sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
    int regsPerMultiprocessor;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
    int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};

const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void); /* clears it unless the context is spoilt */
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaDriverGetVersion(int *out);
cudaError_t cudaRuntimeGetVersion(int *out);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found);
cudaError_t cudaGetDeviceCount(int *out);
cudaError_t cudaGetDevice(int *out);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device);
cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device);

cudaError_t cudaMalloc(void **out, size_t bytes); /* the memory is 0xFF: NaN in every float type */
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
/* A range that is not inside one allocation of the right kind ends the process with a message. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *p, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t *out);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel);

#ifdef __cplusplus
}
#include <plsim_device.h>
#endif

#endif
