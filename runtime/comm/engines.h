/* engines.h - the engines that move tensors between ranks. */
#ifndef PL_RUNTIME_COMM_ENGINES_H
#define PL_RUNTIME_COMM_ENGINES_H

#include "runtime/comm/comm.h"

extern const struct pl_comm_ops pl_comm_mpi;  /* mpi_engine.c */
extern const struct pl_comm_ops pl_comm_nccl; /* nccl.c, in the CUDA back-end */

#endif
