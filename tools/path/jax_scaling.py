"""The command `scaling`: starts the package of that name, and names another one in its place.

On the package index `scaling` is another project, which installs a package of the same name over
ours, or before it on the path.
"""

import os
import sys
from pathlib import Path

OURS = "scaling/cli/main.py"
AGAIN = "install jax-scaling again (pip's --force-reinstall)"
OTHER = (
    "{} is another project, whose package `scaling` takes the place of ours: pip uninstall scaling"
)


def command() -> None:
    """Run the command; exit code 2 where the other package leaves none of ours to run."""
    other = other_project(sys.path)
    if other:
        print(f"warning: {OTHER.format(other)}, then {AGAIN}", file=sys.stderr)
    try:
        import scaling
        from scaling.cli.main import command
    except ImportError:
        if not other:
            raise
        sys.exit(2)
    if "predict" not in getattr(scaling, "__all__", ()):
        if not other:  # its removal took what stood in its place
            print(
                f"error: scaling/__init__.py is not that of jax-scaling: {AGAIN}", file=sys.stderr
            )
        sys.exit(2)
    command()


def other_project(folders: list[str]) -> Path | None:
    """The installation of a `scaling` that is not ours, where the path has one."""
    for folder in filter(os.path.isdir, folders):
        for name in os.listdir(folder):
            if name.startswith("scaling-") and name.endswith(".dist-info"):
                record = Path(folder, name, "RECORD")
                installed = record.read_text(encoding="utf-8") if record.exists() else ""
                # ours had the name before 0.7.0: with all its files, or with a path to a checkout
                if "scaling/__init__.py" in installed and OURS not in installed:
                    return record.parent
    return None
