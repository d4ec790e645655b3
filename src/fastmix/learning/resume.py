"""The fits of one call, finished ones and the one under way, in a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import OutOfTimeError
from fastmix.errors import FormatError
from fastmix.learning.data import Dataset
from fastmix.learning.optimise import Report
from fastmix.methods.sampling_run import Checkpoint

__all__ = ["Ledger", "Rounds", "fingerprint"]

Arrays = dict[str, NDArray[Any]]


class Ledger:
    """What a call has learnt so far: finished fits by their number, and the state of the one under way.

    The order of fits depends on nothing but the arguments of the call. Without a path nothing is kept.
    """

    def __init__(self, path: str | None, seconds: float) -> None:
        self._file = None if path is None else Checkpoint(path, seconds)
        self._fits: dict[int, tuple[FloatArray, dict[str, Any]]] = {}
        self._number = 0
        self._state: tuple[Arrays, dict[str, Any]] | None = None

    @property
    def seed(self) -> int | None:
        """That of the run in the file."""
        return None if self._file is None else self._file.seed

    def resume(self, options: str, seed: int) -> None:
        """Read what is there; a :class:`FormatError` if it belongs to another run."""
        if self._file is None:
            return
        if (parts := self._file.resume(options, seed)) is None:
            self._save({}, None, now=True)  # the seed is known from now on
            return
        try:
            facts = json.loads(str(parts.pop("facts")))
            self._fits = {int(k): (parts.pop(f"fit {k}"), entry) for k, entry in facts["fits"].items()}
            self._state = (parts, facts["state"]) if facts["state"] is not None else None
        except (LookupError, TypeError, ValueError):  # its sum is right, but this is not what was saved
            raise FormatError(f"{self._file.path}: the checkpoint is damaged; remove the file to begin anew") from None

    def next_fit(self) -> tuple[FloatArray, dict[str, Any]] | None:
        """The result of the next fit, its v and what else is known of it, if it is there already."""
        self._number += 1
        return self._fits.get(self._number)

    def take_state(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Where the present fit was left, once."""
        if self._state is None or self._state[1]["fit"] != self._number:
            return None
        state, self._state = self._state, None
        return state

    def keep_fit(self, v: FloatArray, facts: dict[str, Any]) -> None:
        """Note a finished fit, and save it at once."""
        if self._file is not None:
            self._fits[self._number] = v, facts
            self._save({}, None, now=True)

    def keep_state(self, arrays: Arrays, facts: dict[str, Any], *, now: bool = False) -> None:
        """Save where the present fit is, if the file is old enough."""
        if self._file is not None:
            self._save(arrays, {"fit": self._number, **facts}, now=now)

    def _save(self, arrays: Arrays, state: dict[str, Any] | None, *, now: bool) -> None:
        assert self._file is not None
        facts = json.dumps({"fits": {k: facts for k, (_, facts) in self._fits.items()}, "state": state})
        fits = {f"fit {k}": v for k, (v, _) in self._fits.items()}
        self._file.save({"facts": np.array(facts), **fits, **arrays}, now=now)

    @property
    def keeps(self) -> bool:
        """Whether there is a file."""
        return self._file is not None


class Rounds:
    """A context for the rounds of a fit: the time limit and Ctrl-C end them, which its ``result`` says.

    After every round, and in the end once more, ``keep`` gets all that is needed to go on from there.
    """

    def __init__(
        self, result: Any, keep: Callable[..., None] | None, report: Report | None,
        state: tuple[Arrays, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self._result, self._keep, self._report, self._state = result, keep, report, state

    def end(self, entry: dict[str, Any], v: FloatArray, pack: Callable[[], tuple[Arrays, dict[str, Any]]]) -> None:
        """Report a round, and keep what ``pack`` gives."""
        if self._keep is not None:
            self._state = pack()
        if self._report is not None:
            self._report(entry, v)
        if self._keep is not None and self._state is not None:
            self._keep(*self._state, now=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if kind is not None:
            if not issubclass(kind, OutOfTimeError | KeyboardInterrupt):
                return False
            self._result.stopped_by = "time_limit" if issubclass(kind, OutOfTimeError) else "interrupt"
        if self._keep is not None and self._state is not None:
            self._keep(*self._state, now=True)
        return True


def fingerprint(*parts: Any) -> str:
    """A sum of data, arrays and plain values."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Dataset):
            names = (part.variable_names, part.state_names)
            part = fingerprint(part.states, part.weights, part.num_states, names)
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype} {part.shape} ".encode() + np.ascontiguousarray(part).tobytes())
        else:
            total.update(f"{part!r} ".encode())
    return total.hexdigest()
