#!/bin/sh
# Environments of the programs that need packages of their own, beside this project's:
#
#   sh experiments/foreign/environments.sh [FOLDER]       .venv-foreign/levanter and .../maxtext, 5 GB
#
# PYTHON is 3.12 or newer, which both ask for. Levanter's Haliax runs on jax 0.10, not on 0.12. MaxText
# runs without Transformer Engine, whose package is built against a CUDA toolkit.
set -e
folder=${1:-.venv-foreign}
python=${PYTHON:-python3.12}

make_environment() {
    name=$1
    shift
    "$python" -m venv "$folder/$name"
    "$folder/$name/bin/pip" install --quiet "$@"
    "$folder/$name/bin/pip" install --quiet -e .
}

make_environment levanter --pre levanter haliax equinox gitpython 'jax[cuda12-local]==0.10.2' \
    jax-cuda12-plugin==0.10.2 'flax<0.12.10' nvidia-cuda-nvcc-cu12 nvidia-cudnn-cu12

"$python" -m venv "$folder/maxtext"
"$folder/maxtext/bin/pip" install --quiet --no-deps maxtext
"$folder/maxtext/bin/python" - <<'PYTHON' >"$folder/maxtext/requirements.txt"
from importlib.metadata import requires

for line in requires("maxtext"):
    name, _, where = line.partition(";")
    if "cuda12" in where and not name.startswith("transformer-engine"):
        print(name)
PYTHON
"$folder/maxtext/bin/pip" install --quiet -r "$folder/maxtext/requirements.txt" \
    nvidia-cuda-nvcc-cu12 -e .
