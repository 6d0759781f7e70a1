#!/bin/bash
# Trains on the CPUs of two nodes: sbatch slurm-cpu.sh job.yaml [KEY=VALUE...]
#
# One rank for each task, with a thread for each CPU of the task. 120 seconds before the time limit
# the ranks save and end with status 143, and the job is queued again, as it is when Slurm loses a
# node. It then continues from its last checkpoint. A save has to take less than those seconds.
#SBATCH --job-name=plimsoll
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

threads=${SLURM_CPUS_PER_TASK:-1}
srun --mpi=pmi2 --cpus-per-task="$threads" plimsoll train "$1" "threads=$threads" "${@:2}"
status=$?
if [ $status -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
