#!/bin/sh
# Makes .venv and installs this project into it, editable, with the extras named:
#
#     tools/setup.sh dev,deviceless
#     tools/setup.sh parity .venv-parity      into another environment
#
# PYTHON=/path/to/python chooses the interpreter; otherwise the first below that runs and is new
# enough. uv does the work where it is on the PATH, else venv and pip.
set -eu

extras=$1
venv=${2:-.venv}

say() { printf '%s\n' "$@" >&2; }

has_uv() { command -v uv >/dev/null 2>&1; }

# Asks the interpreter itself: a pyenv shim is on the PATH even where it cannot run.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for python in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if is_new_enough "$python"; then
            echo "$python"
            return
        fi
    done
    if [ -z "${PYTHON:-}" ] && has_uv; then
        echo 3.12 # uv brings its own
        return
    fi
    say "No Python 3.11 or newer runs here (tried: ${PYTHON:-python3.13 ... python3.11, python3, python})." \
        "Install one, or name it: make test PYTHON=/path/to/python3.12"
    return 1
}

make_venv() {
    python=$(find_python)
    say "Making $venv with $python"
    if has_uv; then
        UV_VENV_CLEAR=1 uv venv --quiet --python "$python" "$venv"
    elif ! "$python" -m venv --clear "$venv"; then
        say "$python cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv" \
            "(or install uv, which this script uses where it finds it)."
        return 1
    fi
}

install_project() {
    if has_uv; then
        uv pip install --quiet --python "$venv/bin/python" --editable ".[$extras]"
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    fi
}

# Where a checkout or archive holds no links: scaling/models, scaling/meshes, and what an editable
# installation puts on the path.
link() { [ -e "$2" ] || [ -L "$2" ] || ln -s "$1" "$2"; }
mkdir -p scaling tools/path
link ../models scaling/models
link ../meshes scaling/meshes
link ../../scaling tools/path/scaling

is_new_enough "$venv/bin/python" || make_venv
say "Installing jax-scaling[$extras] into $venv (a few minutes the first time)"
if ! install_project; then
    say "" "Installing jax-scaling[$extras] failed; the lines above say why. Run the same command again once" \
        "the package index can be reached. Without a network, fill a folder on a machine that has one" \
        "(same system and Python version), copy it here and point pip or uv at it:" \
        "    pip download --dest wheels '.[$extras]' hatchling editables" \
        "    PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels make test       (uv: UV_NO_INDEX, UV_FIND_LINKS)"
    exit 1
fi
