// toy_op_cuda.cpp - the same on the emulated GPU.
#include "runtime/kernels/cuda/table.h"

extern "C" pl_err pl_cuda_toyglu(struct pl_device *dev, const struct pl_call *c) {
    return pl_cuda_swiglu(dev, c);
}

extern "C" pl_err pl_cuda_toyglu_bwd(struct pl_device *dev, const struct pl_call *c) {
    return pl_cuda_swiglu_bwd(dev, c);
}
