#!/bin/bash
# A run on the hosts of a file, one process for each GPU:   experiments/launch/openmpi.sh hosts.txt
#
# hosts.txt   node0 slots=8
#             node1 slots=8      the first one also tells the others where to meet

set -euo pipefail

HOSTS="${1:?usage: openmpi.sh HOSTS_FILE; its lines are: NAME slots=GPUS}"
RUN="${RUN:-llama3-8b}"
MESH="${MESH:-data=2,fsdp=8}"          # as many devices as there are slots
RUN_DIR="${RUN_DIR:-$PWD/runs/$RUN}"   # on a file system that all hosts share
RESTARTS="${RESTARTS:-3}"
PORT="${PORT:-29400}"                  # free on the first host

FIRST="$(awk '!/^[[:space:]]*(#|$)/ { print $1; exit }' "$HOSTS")"
SLOTS="$(awk '!/^[[:space:]]*(#|$)/ { n = 1; for (i = 2; i <= NF; i++)
    if ($i ~ /^slots=/) n = substr($i, 7); sum += n } END { print sum + 0 }' "$HOSTS")"

RESUME=()
if compgen -G "$RUN_DIR/checkpoints/step_????????" > /dev/null; then
    RESUME=(--resume)
fi

exec mpirun --hostfile "$HOSTS" -np "$SLOTS" \
    -x JAX_COORDINATOR_ADDRESS="$FIRST:$PORT" -x PATH \
    scaling train "$RUN" --mesh "$MESH" --run-dir "$RUN_DIR" --restarts "$RESTARTS" \
    ${RESUME[@]+"${RESUME[@]}"}
