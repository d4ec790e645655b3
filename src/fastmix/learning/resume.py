"""The fits of one call, finished ones and the one under way, in a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checkpoint import Checkpoint
from fastmix._clock import Ending
from fastmix.learning.dataset import Dataset
from fastmix.learning.minimize import Report

__all__ = ["Ledger", "Rounds", "Saved", "fingerprint"]

Arrays = dict[str, NDArray[Any]]

#: Where a fit is, to go on from: arrays and plain data.
Saved = tuple[Arrays, dict[str, Any]]


class Ledger:
    """What a call has learnt so far: finished fits by their number, and the state of the one under way.

    The order of fits depends on nothing but the arguments of the call. Without a path nothing is kept.
    """

    def __init__(self, file: Checkpoint | None) -> None:
        self._file = file
        self._fits: dict[int, tuple[FloatArray, dict[str, Any]]] = {}
        self._number = 0
        self._state: Saved | None = None

    @property
    def number(self) -> int:
        """How many fits there have been, the one under way included."""
        return self._number

    def resume(self, options: str, seed: int) -> None:
        """Read what is there; a :class:`FormatError` if it belongs to another run."""
        if self._file is not None and not self._file.restore(options, seed, self._take):
            self._save({}, None, now=True)  # the seed is known from now on

    def _take(self, parts: Arrays) -> None:
        """Take in what the file holds."""
        facts = json.loads(str(parts.pop("facts")))
        self._fits = {int(k): (parts.pop(f"fit {k}"), entry) for k, entry in facts["fits"].items()}
        self._state = (parts, facts["state"]) if facts["state"] is not None else None

    def next_fit(self) -> tuple[FloatArray, dict[str, Any]] | None:
        """The result of the next fit, its v and what else is known of it, if it is there already."""
        self._number += 1
        return self._fits.get(self._number)

    def take_state(self) -> Saved | None:
        """Where the present fit was left, once."""
        if self._state is None or self._state[1]["fit"] != self._number:
            return None
        state = self._state
        self._state = None
        return state

    def keep_fit(self, v: FloatArray, facts: dict[str, Any]) -> None:
        """Note a finished fit, and save it at once."""
        if self._file is not None:
            self._fits[self._number] = (v, facts)
            self._save({}, None, now=True)

    def keep_state(self, arrays: Arrays, facts: dict[str, Any], *, now: bool = False) -> None:
        """Save where the present fit is, if the file is old enough."""
        if self._file is not None:
            self._save(arrays, {"fit": self._number, **facts}, now=now)

    def _save(self, arrays: Arrays, state: dict[str, Any] | None, *, now: bool) -> None:
        """Write all finished fits, and the state of the one under way."""
        assert self._file is not None
        facts = json.dumps({"fits": {k: facts for k, (_, facts) in self._fits.items()}, "state": state})
        fits = {f"fit {k}": v for k, (v, _) in self._fits.items()}
        self._file.save({"facts": np.array(facts), **fits, **arrays}, now=now)

    @property
    def keeps(self) -> bool:
        """Whether there is a file."""
        return self._file is not None


class Rounds:
    """What the rounds of a fit report, and what is kept of them.

    ``with rounds.around(result):`` is a context for the rounds: the time limit and Ctrl-C end them, which the result
    says. After every round, and in the end once more, ``keep`` gets all that is needed to go on from there.

    Attributes
    ----------
    saved : (arrays, plain data) or None
        What an earlier call has kept, to go on from.
    """

    def __init__(
        self, keep: Callable[..., None] | None = None, report: Report | None = None, saved: Saved | None = None
    ) -> None:
        self.saved = saved
        self._keep = keep
        self._report = report
        self._latest = saved

    @contextmanager
    def around(self, result: Any) -> Iterator[None]:
        """A context for all rounds; the end of the time and Ctrl-C are noted as what the result was stopped by."""
        with Ending() as ending:
            yield
        if ending.by != "done":
            result.stopped_by = ending.by
        if self._keep is not None and self._latest is not None:
            self._keep(*self._latest, now=True)

    def end(self, entry: dict[str, Any], v: FloatArray, pack: Callable[[], Saved]) -> None:
        """Report a round, and keep what ``pack`` gives."""
        if self._keep is not None:
            self._latest = pack()
        if self._report is not None:
            self._report(entry, v)
        if self._keep is not None and self._latest is not None:
            self._keep(*self._latest, now=False)


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
