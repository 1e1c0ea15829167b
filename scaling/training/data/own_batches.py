"""Anybody's batches as the loop draws them."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from scaling.meshes.errors import InputError
from scaling.run.user_code import described
from scaling.training.launch.consensus import on_host
from scaling.training.weights.naming import to_dict


class OwnBatches(Iterator[Any]):
    """Anybody's batches, with their position as JSON.

    Where the data have no position, the number of batches drawn is one: they are drawn anew.
    """

    def __init__(self, data: Any, where: str):
        if not hasattr(data, "__iter__"):
            raise InputError(f"{where}: data is {described(data)}, no iterable of batches")
        self._data, self._where = iter(data), where
        self._first: list[Any] = []  # drawn for its shapes
        self._count = 0

    def peek(self) -> Any:
        """The first batch, which is drawn again."""
        for batch in self._data:
            self._first = [batch]
            return batch
        raise InputError(f"{self._where}: the data have no batch: they ended at once")

    def __next__(self) -> Any:
        batch = self._first.pop() if self._first else next(self._data)
        self._count += 1
        return batch

    def named(self, batch: Any) -> dict[str, Any]:
        """The arrays of a batch by name, whole."""
        arrays = to_dict(batch).items()
        return {name.replace("/", ".") or "batch": on_host(x) for name, x in arrays}

    def get_state(self) -> dict[str, Any]:
        """The position as JSON.

        Raises:
            InputError: the data's own cannot be written so.
        """
        if not hasattr(self._data, "get_state"):
            return {"batches": self._count}
        state = self._data.get_state()
        if isinstance(state, bytes):  # as of grain's DataLoader
            return {"bytes": base64.b64encode(state).decode()}
        try:
            json.dumps(state)
        except TypeError:
            raise InputError(
                f"{self._where}: get_state() of the data returned {described(state)}, which is no "
                "JSON: return numbers, texts, lists and dicts, or bytes"
            ) from None
        return {"position": state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on after the last batch that was drawn before `get_state`.

        Raises:
            InputError: the position is of data of another kind, or the data end before it.
        """
        if "batches" in state and not hasattr(self._data, "set_state"):
            for done in range(state["batches"]):
                if next(self, None) is None:
                    raise InputError(
                        f"{self._where}: the data end after {done} batches, and the checkpoint was "
                        f"saved after {state['batches']}"
                    )
            return
        self._first = []
        if "bytes" in state and hasattr(self._data, "set_state"):
            self._data.set_state(base64.b64decode(state["bytes"]))
        elif "position" in state and hasattr(self._data, "set_state"):
            self._data.set_state(state["position"])
        else:
            raise InputError(
                f"{self._where}: the checkpoint was saved with data of another kind (get_state and "
                "set_state came or went): put them back, or start in another --run-dir"
            )

    def close(self) -> None:
        """End the threads of the data, where they can be told."""
        getattr(self._data, "close", lambda: None)()
