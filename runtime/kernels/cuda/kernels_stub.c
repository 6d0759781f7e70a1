/* kernels_stub.c - the CUDA back-end of a build without the toolkit: no kernels, and a device that
 * refuses to open. */
#include "runtime/kernels/back_ends.h"

const struct pl_back_end pl_back_end_cuda = {.ops = &pl_device_cuda, .kernels = NULL};
