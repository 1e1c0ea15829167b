#!/bin/bash
# A run on 4 nodes of 8 GPUs, one process for each GPU:   sbatch experiments/launch/slurm.sh
# Another run, or another folder:   RUN=llama3-8b RUN_DIR=$SCRATCH/llama sbatch ...
#
#SBATCH --job-name=scaling
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

set -euo pipefail

RUN="${RUN:-llama3-8b}"
MESH="${MESH:-data=4,fsdp=8}"          # as many devices as the job has tasks
RUN_DIR="${RUN_DIR:-$PWD/runs/$RUN}"   # on a file system that all nodes share
RESTARTS="${RESTARTS:-3}"              # after a crash of processes; nodes that fail: --requeue

# A job that Slurm has put back into the queue goes on from its last checkpoint.
RESUME=()
if compgen -G "$RUN_DIR/checkpoints/step_????????" > /dev/null; then
    RESUME=(--resume)
fi

# One node knows the address; the port follows from the job, so that two jobs do not meet.
# Without it jax finds both by itself, but --restarts then waits longer for the old processes.
export JAX_COORDINATOR_ADDRESS="${SLURMD_NODENAME:-$(hostname)}:$((20000 + SLURM_JOB_ID % 10000))"

# When a node is gone the job ends, and is put back into the queue. 300 s before the time limit all
# processes get SIGTERM, save, and end with code 0: submit the same script again to go on.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # srun does not take it from sbatch by itself
exec srun --kill-on-bad-exit=1 --label \
    scaling train "$RUN" --mesh "$MESH" --run-dir "$RUN_DIR" --restarts "$RESTARTS" \
    ${RESUME[@]+"${RESUME[@]}"}
