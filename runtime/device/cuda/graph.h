/* graph.h - the graph functions of struct pl_device_ops (device.h), for CUDA. */
#ifndef PL_RUNTIME_DEVICE_CUDA_GRAPH_H
#define PL_RUNTIME_DEVICE_CUDA_GRAPH_H

#include "runtime/device/device.h"

pl_err pl_cuda_record_begin(struct pl_device *dev);
pl_err pl_cuda_record_end(struct pl_device *dev, bool keep, struct pl_graph **out);
pl_err pl_cuda_replay(struct pl_device *dev, const struct pl_graph *g);
void pl_cuda_forget(struct pl_device *dev, struct pl_graph **g);

#endif
