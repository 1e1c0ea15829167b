#!/bin/sh
# Environments of the programs that need packages of their own, beside this project's:
#
#   sh experiments/foreign/environments.sh [FOLDER] [NAME ...]     .venv-foreign, all
#
# levanter  Levanter and Equinox, on jax 0.10: its Haliax does not run on 0.12 (jax.core.is_constant_dim
#           is gone), and compiling without GPUs begins with 0.10.
# maxtext   MaxText, without Transformer Engine, whose package is built against a CUDA toolkit.
# gemma     DeepMind's gemma, and with it on the path four repositories that are no packages.
# others    numpyro, diffrax, distrax, brax, and the last transformers that have Flax, on jax 0.10.
# science   mctx, JAX MD and blackjax, on jax 0.10.
# tunix     Google's Tunix, on the newest jax.
# weather   GraphCast from its repository, for PyPI's graphcast is another package; and NeuralGCM
#           from its own, for jax cannot read the checkpoint that PyPI's carries.
# easydel   EasyDeL, without what its pins ask for besides training: they conflict.
# axlearn   AXLearn from its repository, on the jax that it asks for, 0.8.3.
#
# PYTHON is 3.12 or newer, as MaxText and Levanter ask. Where uv is installed it takes the place of pip.
# MIRROR, a folder of OWNER/REPOSITORY, takes the place of github.com where that is not reached.
# Needs git, and 25 GB of disk. Versions are those of 23 November 2026.
set -e
if [ -n "$MIRROR" ]; then # read by git, and by pip where it calls git
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=https://github.com/
    export GIT_CONFIG_KEY_0="url.$(cd "$MIRROR" && pwd)/.insteadOf"
fi
folder=${1:-.venv-foreign}
[ $# -eq 0 ] || shift
python=${PYTHON:-python3.12}
packages="$folder/packages" # sources, in folders of their own
ours='-e .[deviceless]'

make_environment() {
    if command -v uv >/dev/null; then
        uv venv --quiet --clear --python "$python" "$folder/$1"
    else
        "$python" -m venv --clear "$folder/$1"
    fi
}

install() { # NAME PACKAGE ...
    environment=$folder/$1
    shift
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$environment/bin/python" "$@"
    else
        "$environment/bin/pip" install --quiet "$@"
    fi
}

clone() { # NAME OWNER/REPOSITORY COMMIT FOLDERS [PATH]: they or PATH go on NAME's path
    where=$packages/${2#*/}
    rm -rf "$where"
    git init --quiet "$where"
    git -C "$where" remote add origin "https://github.com/$2"
    git -C "$where" fetch --quiet --depth 1 --filter=blob:none origin "$3"
    git -C "$where" sparse-checkout set $4
    git -C "$where" checkout --quiet FETCH_HEAD
    site=$("$folder/$1/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    (cd "$where/${5:-$4}" && pwd) >"$site/${2#*/}.pth"
}

levanter() {
    make_environment levanter
    install levanter levanter==1.2.dev1644 haliax==1.4.dev453 equinox gitpython \
        jax==0.10.2 'flax<0.12.10' $ours
}

maxtext() {
    make_environment maxtext
    install maxtext --no-deps maxtext==0.2.5
    "$folder/maxtext/bin/python" - >"$folder/maxtext/requirements.txt" <<'PYTHON'
from importlib.metadata import requires

for line in requires("maxtext"):
    name, _, where = line.partition(";")
    if "cuda12" in where and not name.startswith("transformer-engine"):
        print(name)
PYTHON
    install maxtext -r "$folder/maxtext/requirements.txt" $ours
}

gemma() {
    make_environment gemma
    install gemma gemma==4.0.1 $ours
    install gemma 'protobuf>=7.36' # gemma's own files ask for it, its xmanager for less
    clone gemma jax-ml/jax-llm-examples 8b4b24602e0652100e9835ec6d91fed58bbea472 llama3
    clone gemma jax-ml/bonsai 36284254cf738d99c1c5d1e3a292d27656a0a365 bonsai .
    clone gemma google/flax 18f8f311c275d57f46d95e41b15aa97b454754c0 examples/imagenet
    clone gemma google-research/big_vision 0127fb6b337ee2a27bf4e54dea79cff176527356 big_vision .
}

others() {
    make_environment others
    install others numpyro==0.22.0 diffrax==0.7.2 distrax==0.1.9 dm-haiku==0.0.17 brax==0.14.2 \
        transformers==4.57.6 jax==0.10.2 'flax<0.12.10' $ours
}

science() {
    make_environment science
    install science mctx==0.0.71 jax-md==0.2.29 blackjax==1.7.1 jax==0.10.2 'flax<0.12.10' $ours
}

tunix() {
    make_environment tunix
    install tunix google-tunix==0.1.7 $ours
}

weather() {
    make_environment weather
    install weather dinosaur==1.5.1 gin-config dm-haiku==0.0.17 jraph chex fiddle h5netcdf pyproj rtree \
        trimesh 'xarray<=2026.2' xarray-tensorstore jax==0.10.2 'flax<0.12.10' $ours
    clone weather neuralgcm/neuralgcm 84083549ecc89326a8a085686b034bd269c05da9 neuralgcm .
    clone weather google-deepmind/xarray_jax 0badd05bd67129621d5b56fef65747f5e2197022 xarray_jax .
    clone weather google-deepmind/graphcast 9c034db1ff412d5db6cbe6bb0c5c9afc5a267719 weathernext .
}

older() { # NAME JAX PACKAGE ...: our package, which asks for jax 0.10, beside an older one
    name=$1 jax=$2
    shift 2
    make_environment "$name"
    install "$name" "jax[cuda12-local]==$jax" "jax-cuda12-plugin==$jax" 'nvidia-cudnn-cu12>=9.8' \
        'nvidia-cuda-nvcc-cu12>=12.9' 'nvidia-cuda-runtime-cu12>=12.9' rich scipy chex optax "$@"
    install "$name" --no-deps -e .
}

easydel() {
    older easydel 0.9.2 eformer==0.0.99.12 ejkernel==0.0.78 'transformers>=5.5,<5.6' torch \
        flax==0.12.3 'ray[default]==2.54.0' 'grain~=0.2.11' 'datasets>=3.6' jinja2 msgspec \
        pyzmq partial-json-parser fastapi uvicorn pillow
    install easydel --no-deps easydel==0.3.0
}

axlearn() {
    older axlearn 0.8.3 'flax>=0.12,<0.12.6' optax==0.2.6 tensorflow-cpu seqio aqtp==0.9.0 \
        nltk tokamax
    clone axlearn apple/axlearn 34aed43c1b6e581c4753d06d7cbeedd5010ef26b \
        'axlearn/common axlearn/data/tokenizers axlearn/experiments/text axlearn/vision' .
}

for name in ${*:-levanter maxtext gemma others science tunix weather easydel axlearn}; do "$name"; done
