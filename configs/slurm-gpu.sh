#!/bin/bash
# Trains on the GPUs of two nodes: sbatch slurm-gpu.sh job.yaml [KEY=VALUE...]
#
# One rank for each GPU. Ranks on GPUs need no MPI: they find each other by the address of the first
# node, a port of this job, and a secret. 120 seconds before the time limit the ranks save and end
# with status 143, and the job is queued again, as it is when Slurm loses a node. It then continues
# from its last checkpoint. A save has to take less than those seconds.
#SBATCH --job-name=plimsoll
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
PLIMSOLL_JOB_TOKEN=$(openssl rand -hex 16)
export MASTER_ADDR MASTER_PORT PLIMSOLL_JOB_TOKEN

srun --mpi=none --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" plimsoll train "$1" device=cuda "${@:2}"
status=$?
if [ $status -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
