#!/usr/bin/env bash
# Starts this machine's part of a run: launch.sh NODE NODES HEAD RUN [SETTINGS]
#   NODE      number of this machine, from 0
#   NODES     how many machines there are
#   HEAD      address of machine 0
#   RUN       run folder, at the same path on every machine
# PROCESSES is the number of processes (GPUs) of a machine, 1 by default; PORT a free port of machine 0.
set -euo pipefail
node=$1 nodes=$2 head=$3 run=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
words=("$here/config.yaml" "run.dir=$run")
if [ -d "$run/checkpoints" ]; then words=(--resume "$run"); fi
exec python -m torch.distributed.run --nnodes "$nodes" --node-rank "$node" --nproc-per-node "${PROCESSES:-1}" \
  --master-addr "$head" --master-port "${PORT:-29500}" -m groupwise train "${words[@]}" "$@"
