#!/bin/sh
# Prints the newest Python here that is 3.12 or newer, of the PATH, of pyenv and of uv; says on
# stderr where there is none, or .venv has it. No pre-releases and no free-threaded ones: few
# wheels exist for them.
set -eu

known() {
    for name in python3.14 python3.13 python3.12 python3; do
        command -v $name || true
    done
    ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 || true
    uv python find '>=3.12' || true
}

# "3 13 /path/to/python" where it is one of those
described='
import sys, sysconfig
v = sys.version_info
if v >= (3, 12) and v.releaselevel == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*v[:2], sys.executable)'

newest=$(known 2>/dev/null | while read -r python; do
    "$python" -c "$described" 2>/dev/null || true
done | sort -k1,1n -k2,2n | tail -n 1)
of_venv=$(.venv/bin/python -c "$described" 2>/dev/null | cut -d ' ' -f -2)

case $newest in
    '') echo "No Python 3.12 or newer is here (PATH, pyenv, uv): not tested under one." >&2 ;;
    "$of_venv "*) echo "The newest Python here is that of .venv: make test tests under it." >&2 ;;
    *) echo "$newest" | cut -d ' ' -f 3- ;;
esac
