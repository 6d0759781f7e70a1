/* cuda_copy_stream.c - a second stream, for copies of host memory, and for what ranks exchange,
 * while the first one computes.
 *
 * Kernels, copies and NCCL's operations are queued on pl_cuda.stream, which is the second stream
 * from begin to end. It is made with the device, so that what the driver takes for it is part of
 * the context when that is measured. It has the greatest priority, because its blocks would
 * otherwise wait until those of a whole product have started.
 * There is one communicator, and what it does in a step is queued by one thread on this stream: in
 * the order of the program, which is the same on every rank. */
#include "runtime/device/cuda/cuda.h"

pl_err pl_cuda_copy_stream_open(struct pl_device *dev) {
    struct pl_cuda_copy_stream *a = &pl_cuda_of(dev)->copy_stream;
    const unsigned flags = cudaEventDisableTiming;
    int least, greatest;
    PL_TRY(pl_cuda_error(cudaEventCreateWithFlags(&a->before, flags)));
    for (int i = 0; i < PL_CUDA_COPY_EVENTS; i++)
        PL_TRY(pl_cuda_error(cudaEventCreateWithFlags(&a->done[i], flags)));
    PL_TRY(pl_cuda_error(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    return pl_cuda_error(cudaStreamCreateWithPriority(&a->stream, cudaStreamNonBlocking, greatest));
}

pl_err pl_cuda_copy_stream_begin(struct pl_device *dev) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    struct pl_cuda_copy_stream *a = &cuda->copy_stream;
    PL_TRY(pl_cuda_error(cudaEventRecord(a->before, cuda->stream)));
    PL_TRY(pl_cuda_error(cudaStreamWaitEvent(a->stream, a->before, 0)));
    a->main = cuda->stream;
    cuda->stream = a->stream;
    return PL_ERR_OK;
}

pl_err pl_cuda_copy_stream_end(struct pl_device *dev, uint32_t number) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    struct pl_cuda_copy_stream *a = &cuda->copy_stream;
    cuda->stream = a->main;
    a->main = NULL;
    return pl_cuda_error(cudaEventRecord(a->done[number % PL_CUDA_COPY_EVENTS], a->stream));
}

pl_err pl_cuda_copy_stream_await(struct pl_device *dev, uint32_t number) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    const cudaEvent_t done = cuda->copy_stream.done[number % PL_CUDA_COPY_EVENTS];
    return pl_cuda_error(cudaStreamWaitEvent(cuda->stream, done, 0));
}

void pl_cuda_copy_stream_close(struct pl_device *dev) {
    struct pl_cuda_copy_stream *a = &pl_cuda_of(dev)->copy_stream;
    if (a->stream) (void)cudaStreamSynchronize(a->stream);
    if (a->stream) (void)cudaStreamDestroy(a->stream);
    if (a->before) (void)cudaEventDestroy(a->before);
    for (int i = 0; i < PL_CUDA_COPY_EVENTS; i++)
        if (a->done[i]) (void)cudaEventDestroy(a->done[i]);
    *a = (struct pl_cuda_copy_stream){0};
}
