/* nccl_bytes.h - what NCCL takes of a GPU to connect ranks, predicted from how it is configured.
 *
 * In: ranks.  Out: bytes, and by how much they may be off.  Needs: nothing.
 * A channel has buffers for each connection of it: 512 KiB for the protocol LL, 4800 KiB for LL128
 * and NCCL_BUFFSIZE, which is 4 MiB unless it is set, for the simple one (NCCL 2.30, ncclParam of
 * init.cc). As runtime/comm/nccl.c sets it up, a rank has PL_NCCL_CHANNELS of them, connected when
 * the communicator is made: a ring, two trees, and each of the other ranks, to which it sends by
 * itself. There are no multicast buffers (NCCL_NVLS_ENABLE=0).
 * The prediction has not been compared with NCCL on several GPUs. Connections over a network share
 * buffers, and peers may use fewer channels, which makes it less; proxies and the communicator
 * itself make it more. A run measures the bytes and judges again.
 * Use: budget.comm_bytes = pl_nccl_bytes(ranks); */
#ifndef PL_ESTIMATOR_BASE_NCCL_BYTES_H
#define PL_ESTIMATOR_BASE_NCCL_BYTES_H

#include <stdint.h>

enum { PL_NCCL_CHANNELS = 8 };

#define PL_NCCL_LL_BYTES      (UINT64_C(512) << 10)
#define PL_NCCL_LL128_BYTES   (UINT64_C(4800) << 10)
#define PL_NCCL_SIMPLE_BYTES  (UINT64_C(4) << 20)
#define PL_NCCL_CHANNEL_BYTES (PL_NCCL_LL_BYTES + PL_NCCL_LL128_BYTES + PL_NCCL_SIMPLE_BYTES)

/* NCCL rounds memory of ncclMemAlloc to this (NCCL 2.26 and later, allocator.cc): the recommended
 * granularity of cuMemCreate, which is 2 MiB where pages are large. An arena is one allocation, so
 * a rank takes up to two such units more than it planned; no line of the ledger holds them. */
#define PL_NCCL_UNIT_BYTES (UINT64_C(2) << 20)

/* Returns the bytes that one rank takes; 0 if it is alone. */
static inline uint64_t pl_nccl_bytes(uint32_t ranks) {
    const uint64_t peers = ranks > 1 ? ranks - 1 : 0;
    const uint64_t ring = peers ? 1 : 0, trees = peers > 1 ? 2 : peers;
    return PL_NCCL_CHANNELS * (ring + trees + peers) * PL_NCCL_CHANNEL_BYTES;
}

static inline uint64_t pl_nccl_doubt(uint32_t ranks) {
    return pl_nccl_bytes(ranks) / 2;
}

#endif
