"""The line of code that an instruction comes from: `/opt/step.py:6`.

    FileNames
    1 "/opt/step.py"
    FileLocations
    6 {file_name_id=1 function_name_id=2 line=6 end_line=6 column=4 end_column=4}
    StackFrames
    3 {file_location_id=6 parent_frame_id=2}

stand between the first line of a module and its computations; an instruction has
`stack_frame_id=3`. Older texts have `source_file="/opt/step.py" source_line=6` instead. The
innermost frame counts: JAX leaves its own out, and those in which this project lowers a step that
has no line, such as `jax.jit(jnp.sort)`, are left out here.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

TITLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)$")
NAMED = re.compile(r'^(\d+) "(.*)"$')
NUMBERED = re.compile(r"^(\d+) \{(.*)\}$")
FIELD = re.compile(r"(\w+)=(\d+)")
FRAME = re.compile(r"\bstack_frame_id=(\d+)")
OWN = str(Path(__file__).parents[1] / "compile")  # where steps are lowered
SOURCE = re.compile(r'\bsource_file="([^"]*)" source_line=(\d+)')


def frame_lines(text: Sequence[str]) -> dict[int, str]:
    """The place of every stack frame of a module, from its lines; empty where it has none."""
    tables = _tables(text)
    lines: dict[int, str] = {}
    for number, fields in tables["FileLocations"].items():
        path = tables["FileNames"].get(int(fields.get("file_name_id", 0)), {}).get("name")
        is_named = path and not path.startswith(OWN)
        lines[number] = f"{path}:{fields.get('line', 0)}" if is_named else ""
    frames = tables["StackFrames"].items()
    return {n: lines.get(int(fields.get("file_location_id", 0)), "") for n, fields in frames}


def source_line(metadata: str, known: Mapping[int, str]) -> str:
    """The place of an instruction with this metadata; "" where it is not known."""
    if stated := SOURCE.search(metadata):
        return f"{stated[1]}:{stated[2]}"
    frame = FRAME.search(metadata)
    return known.get(int(frame[1]), "") if frame else ""


def short(place: str) -> str:
    """`step.py:6` of a whole path."""
    return PurePosixPath(place).name


def _tables(lines: Sequence[str]) -> dict[str, dict[int, dict[str, str]]]:
    """Title of a table -> number -> fields; the computations after them are not read."""
    found: dict[str, dict[int, dict[str, str]]] = {
        title: {} for title in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
    }
    title = ""
    for line in lines[1:]:
        if line.startswith(("%", "ENTRY")):
            break
        if TITLE.match(line):
            title = line
        elif title and (named := NAMED.match(line)):
            found[title][int(named[1])] = {"name": named[2]}
        elif title and (numbered := NUMBERED.match(line)):
            found[title][int(numbered[1])] = dict(FIELD.findall(numbered[2]))
    return found
