"""Steps that functions of the user make, each compiled in a process of its own.

    this process                    python -m scaling.api.elsewhere
    a request, pickled  --stdin-->  calls the function, compiles, prices
    prediction or error <--stdout-  pickled

A compiler that crashes, or that the system stops for its memory, ends one process: a reason.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from typing import Any

from scaling.api.request import at_the_command_line, command_line
from scaling.api.result import PredictionResult
from scaling.api.script import Make, predict_made, source_file
from scaling.meshes.errors import InputError
from scaling.run.user_code import Loaded

Outcome = PredictionResult | InputError
ENTERED = "SCALING_ELSEWHERE"  # set in the processes that are started here


def stop_if_elsewhere() -> None:
    """Raise `Loaded` in a process that loads the calling script for its function alone."""
    if os.environ.get(ENTERED):
        raise Loaded


def predict_elsewhere(
    make: Make, requests: Sequence[Mapping[str, Any]], jobs: int, title: str
) -> list[Outcome]:
    """Return the price of each request, as `predict_made` takes it, or why there is none.

    A function that no other process could find by name (in a notebook, or inside of another
    function) is called in this one, one request after another.

    At most `jobs` processes run at a time; a terminal shows a bar with that title.
    """
    from rich.console import Console
    from rich.progress import track

    found, is_typed = _findable(make), at_the_command_line()
    one: Callable[[Mapping[str, Any]], Outcome] = lambda request: (
        _here(make, request) if found is None else _elsewhere(found, request, is_typed)
    )
    outcomes: dict[int, Outcome] = {}
    with ThreadPoolExecutor(jobs) as pool:
        if found is None:
            done: Any = ((i, one(request)) for i, request in enumerate(requests))
        else:
            futures = {pool.submit(one, request): i for i, request in enumerate(requests)}
            done = ((futures[future], future.result()) for future in as_completed(futures))
        console, shown = Console(stderr=True), sys.stderr.isatty()
        total = len(requests)
        for i, outcome in track(
            done, title, total, console=console, transient=True, disable=not shown
        ):
            outcomes[i] = outcome
    return [outcomes[i] for i in range(len(requests))]


def _findable(make: Make) -> Make | None:
    """Return a function as another process finds it: by its module, or by its file."""
    if isinstance(make, str):
        return make
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", ".")
    if module == "__main__":
        file = source_file(make)
        return f"{file}:{name}" if file.is_file() and name.isidentifier() else None
    try:
        pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return make


def _here(make: Make, request: Mapping[str, Any]) -> Outcome:
    try:
        return predict_made(make, **request)
    except InputError as error:
        return error


def _elsewhere(make: Make, request: Mapping[str, Any], is_typed: bool) -> Outcome:
    # Standard input stays open until the answer is there: it ends if this process does.
    command = [sys.executable, "-c", "from scaling.api.elsewhere import serve; serve()"]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, ENTERED: "1", "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, env=environment) as process,
    ):
        assert process.stdin is not None and process.stdout is not None  # pipes, as asked
        answer = b""
        try:
            process.stdin.write(pickle.dumps((make, dict(request), is_typed)))
            process.stdin.flush()
            answer = process.stdout.read()
            code = 0 if answer else process.wait()
        except BrokenPipeError:
            code = process.wait()
        finally:
            process.kill()
        if answer:
            outcome: Outcome = pickle.loads(answer)
            return outcome
        said.seek(0)
        lines = said.read().decode(errors="replace").split("\n")
        last = next(filter(None, map(str.strip, reversed(lines))), "without a word")
        by = f"signal {-code}" if code < 0 else f"exit code {code}"
        return InputError(f"the process that compiled it ended by {by}: {last}")


def serve() -> None:
    """Answer one request, read from standard input; end as soon as nobody waits for it."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever the user's code prints
        make, request, is_typed = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        with command_line() if is_typed else nullcontext():
            answers.write(pickle.dumps(_here(make, request)))
    os._exit(0)  # past the thread that reads


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
