#!/bin/sh
# Measures training throughput on the GPUs of this machine and installs nothing: the first Python
# below that has jax, flax, optax and chex and sees a GPU does it. Arguments go on to
# experiments/gpu; with --tiny a Python that sees only the CPU will do.
set -eu

packages='import jax, flax, optax, chex'
gpu="$packages, sys; sys.exit(all(d.platform != 'gpu' for d in jax.devices()))"
out=experiments/results
case " $* " in *" --tiny "*) gpu=$packages out=runs/gpu-tiny ;; esac

for python in ${GPU_PYTHON:-} python3 .venv/bin/python; do
    if "$python" -c "$gpu" >/dev/null 2>&1; then
        echo "Measuring with $python" >&2
        PYTHONPATH=. exec "$python" -m experiments.gpu --out "$out" "$@"
    fi
done

cat >&2 <<EOS
No Python that has jax, flax, optax and chex sees a GPU (tried: ${GPU_PYTHON:-}${GPU_PYTHON:+, }python3, .venv/bin/python).
Name one that does:            make gpu GPU_PYTHON=/path/to/python
Or install for NVIDIA GPUs:    .venv/bin/python -m pip install -e '.[cuda12]'
Tiny sizes on the CPU instead: make gpu GPU_ARGS=--tiny
EOS
exit 1
