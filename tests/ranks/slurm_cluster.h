/* slurm_cluster.h - a Slurm of two nodes on this machine, in a directory of its own.
 *
 * Its daemons run as the user of the test, on free ports, without systemd: munged, slurmctld, and a
 * slurmd for each node. A process of its own, the guardian, starts them.
 *   1  no daemon, task or file outlives the test: the guardian kills all that descends from it and
 *      removes the directory when the process that opened the cluster ends, however that ends
 *   2  what the environment says of another Slurm or PMI is forgotten
 * Needs: the packages slurmctld, slurmd, slurm-client and munge; a user with a name.
 * Use: if (!slurm_cluster_open(&c)) return 77; ... srun, sbatch, scontrol ...;
 *      slurm_cluster_close(&c); */
#ifndef PL_TESTS_RANKS_SLURM_CLUSTER_H
#define PL_TESTS_RANKS_SLURM_CLUSTER_H

#include "tests/support/scratch.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct slurm_cluster {
    char dir[SCRATCH_PATH];
    pid_t guardian;
    uint16_t port; /* for rank 0; nothing of the cluster has it */
};

/* Sets SLURM_CONF and PATH, and returns when both nodes run tasks. False, with a line on stderr
 * that names what is missing: there is no Slurm, or it does not start here. */
bool slurm_cluster_open(struct slurm_cluster *c);
void slurm_cluster_close(struct slurm_cluster *c);

#endif
