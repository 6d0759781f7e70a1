/* cuda_classify.c - what an error of the CUDA runtime means for a run.
 *
 * The CUDA driver documents which errors leave the context usable; it does not promise that the
 * list stays as it is. So the table names what may be survived or is our own mistake, and the rest
 * ends the run. */
#include "runtime/device/cuda/cuda.h"

static const struct {
    cudaError_t code;
    pl_err err;
} meanings[] = {
    {cudaSuccess, PL_ERR_OK},
    /* Nothing was done and the context is as good as before. */
    {cudaErrorMemoryAllocation, PL_ERR_DEVICE_OOM},
    /* No kernel image for this GPU counts as no usable device: another one may have it. */
    {cudaErrorNoDevice, PL_ERR_NO_DEVICE},
    {cudaErrorInvalidDevice, PL_ERR_NO_DEVICE},
    {cudaErrorInsufficientDriver, PL_ERR_NO_DEVICE},
    {cudaErrorInitializationError, PL_ERR_NO_DEVICE},
    {cudaErrorDevicesUnavailable, PL_ERR_NO_DEVICE},
    {cudaErrorSystemDriverMismatch, PL_ERR_NO_DEVICE},
    {cudaErrorSystemNotReady, PL_ERR_NO_DEVICE},
    {cudaErrorNoKernelImageForDevice, PL_ERR_NO_DEVICE},
    {cudaErrorUnsupportedPtxVersion, PL_ERR_NO_DEVICE},
    /* Refused before anything ran. */
    {cudaErrorInvalidValue, PL_ERR_PLAN_BROKEN},
    {cudaErrorInvalidConfiguration, PL_ERR_PLAN_BROKEN},
    {cudaErrorInvalidDevicePointer, PL_ERR_PLAN_BROKEN},
    {cudaErrorInvalidMemcpyDirection, PL_ERR_PLAN_BROKEN},
    {cudaErrorInvalidResourceHandle, PL_ERR_PLAN_BROKEN},
    {cudaErrorInvalidDeviceFunction, PL_ERR_PLAN_BROKEN},
    {cudaErrorLaunchOutOfResources, PL_ERR_PLAN_BROKEN},
};

pl_err pl_cuda_classify(cudaError_t e) {
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].code == e) return meanings[i].err;
    return PL_ERR_DEVICE_LOST;
}
