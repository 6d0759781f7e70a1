/* mpi_near.h - the ranks whose memory this rank may read, on the same machine.
 *
 * MPI copies bytes between two processes into shared memory and out of it again, or sends it over
 * loopback. process_vm_readv (Linux) copies once. UCX, below MPICH, can use it too, but it ends the
 * reader when the other process was killed, so that it is switched off there.
 *   W1  both ranks of a pair know if the receiver reads the sender's memory
 *   W2  whether a rank is near is found out by reading: the cookie of its card, whose value came by
 *       MPI. Other PID namespaces, Yama and seccomp may forbid it
 * Needs: comm.h. No MPI: the module exchanges cards and answers.
 * Use: pl_near_card_init(&mine); near.cards = all cards; pl_near_try(&near, rank, size);
 *      near.read_by[i] = what rank i has at reads[rank]; pl_near_moves(&near, ...) */
#ifndef PL_RUNTIME_COMM_MPI_NEAR_H
#define PL_RUNTIME_COMM_MPI_NEAR_H

#include "runtime/comm/comm.h"
#include "runtime/comm/boot_id.h"

#include <stdatomic.h>

struct pl_near_card {
    uint64_t address; /* address of the cookie in its process */
    int64_t pid;
    unsigned char cookie[16];
    char machine[PL_MACHINE_TEXT]; /* boot_id.h */
};

struct pl_near {
    struct pl_near_card cards[PL_RANKS_MAX];
    unsigned char reads[PL_RANKS_MAX];   /* this rank reads that one */
    unsigned char read_by[PL_RANKS_MAX]; /* it is read by that one */
};

/* Fills in the card of this process. The others read it at its address, so it must not move. */
void pl_near_card_init(struct pl_near_card *mine);
/* Fills in `reads`. */
void pl_near_try(struct pl_near *n, uint32_t rank, uint32_t size);
/* True if the receiver of bytes between this rank and `peer` reads them. Shorter moves go by
 * MPI. */
bool pl_near_moves(const struct pl_near *n, uint32_t peer, bool receive, uint64_t bytes);
/* False: *stop became true, the rank has ended, or its memory can no longer be read. */
bool pl_near_read(const struct pl_near *n, uint32_t peer, void *to, uint64_t from, uint64_t bytes,
                  const atomic_bool *stop);

#endif
