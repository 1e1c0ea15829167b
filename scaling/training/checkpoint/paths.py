"""Paths in which Orbax can save and find again what it saved. Imports no jax.

Seen with orbax-checkpoint 0.12.8, tensorstore 0.1.86 and etils 1.15.0: Orbax looks for the folders
of its processes with a pattern that begins with the whole path (`[a]` finds nothing, `a*` also
those of another run in `ab`), TensorStore takes `\\` for `/`, and gs:/ anywhere is made gs://.
"""

import errno
import glob
import os
from pathlib import Path

from scaling.meshes.errors import InputError

STORES = ("/gs/", "/s3/", "/az/", "/hf/")  # etils.epath opens gs://... for them
# Below the folder of checkpoints Orbax's longest names, with room: of folders, then of a file.
BELOW = Path("step_00000000.orbax-checkpoint-tmp" + "-" * 20, "ocdbt.process_00000", "d", "0" * 60)


def check_path(folder: Path) -> None:
    """Refuse the folder of a run, or of its checkpoints, whose path is not taken literally.

    Raises:
        InputError: why, and how to go on.
    """
    path = folder.absolute()
    if reason := _reason(path):
        raise InputError(
            f"{path} cannot hold checkpoints: {reason}. Choose another --run-dir, or reach it by a "
            "link (ln -s) with a plain name"
        )


def _reason(path: Path) -> str:
    """What stands against a path; "" for nothing."""
    name = str(path)
    if glob.escape(name) != name or "\\" in name:
        return "the checkpoint library takes [, *, ? and \\ in a path for a pattern or a separator"
    if "gs:/" in f"{name}/" or f"{name}/".startswith(STORES):
        return "the checkpoint library takes gs:/, /gs, /s3, /az and /hf for stores in a cloud"
    try:
        name.encode()
        os.lstat(path / BELOW)
    except UnicodeEncodeError:
        return "the path is not UTF-8"
    except OSError as error:  # others: it is not there yet, or is refused elsewhere
        return "the path is too long" if error.errno == errno.ENAMETOOLONG else ""
    except ValueError as error:
        return str(error)
    return ""
