"""How much damping the messages of belief propagation need, and when to give up: one stage of damping after another."""

from __future__ import annotations

import math

from fastmix.variational.tuning import (
    DAMPINGS,
    LAST_PROGRESS_RATIO,
    LAST_WINDOW_ITERATIONS,
    MIN_ITERATIONS_PER_CALL,
    PROGRESS_RATIO,
    SHARE_OF_ITERATIONS_PER_CALL,
    WINDOW_ITERATIONS,
)

__all__ = ["DampingSearch"]


class DampingSearch:
    """The stage of damping that messages are in, and how far they have come.

    A stage ends after a window of iterations without progress: the smallest change of a message in the window is not
    much below that in the window before. The last stage ends, unless the number of iterations was given, after 500
    iterations without any progress: the messages cycle.

    Parameters
    ----------
    damping : float, optional
        The only damping to be used; without it there is a stage for each of :data:`DAMPINGS`.
    max_iter : int, optional
        Iterations at most.
    is_forest : bool
        Whether the graph has no cycles: then the messages end by themselves, after as many iterations as the longest
        path, and need no damping.

    Attributes
    ----------
    num_iterations : int
        Iterations made so far.
    largest_change : float
        Largest change of a message in the last of them.
    history : list of (int, float)
        Both after every call of :meth:`note`.
    """

    def __init__(self, *, damping: float | None, max_iter: int | None, is_forest: bool) -> None:
        self.max_iter = max_iter
        self.num_iterations = 0
        self.largest_change = math.inf
        self.history: list[tuple[int, float]] = []
        self._is_forest = is_forest
        self._stages = list(DAMPINGS) if damping is None else [float(damping)]
        if is_forest:
            self._stages = self._stages[:1]
        self._stage = 0
        self._has_cycled = False
        # The smallest changes in this window and in the one before.
        self._smallest = math.inf
        self._smallest_before = math.inf
        self._window_end = self._window()

    @property
    def damping(self) -> float:
        """The weight of the old messages."""
        return self._stages[self._stage]

    @property
    def num_left(self) -> float:
        """Iterations that may still be made."""
        return math.inf if self.max_iter is None else self.max_iter - self.num_iterations

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done, or nothing is gained by going on."""
        gives_up = self._has_cycled and self.max_iter is None and not self._is_forest
        return self.num_left <= 0 or gives_up

    def num_next(self, most: float) -> int:
        """Iterations to make before the next look at the progress, no more than ``most``."""
        wanted = max(MIN_ITERATIONS_PER_CALL, SHARE_OF_ITERATIONS_PER_CALL * self.num_iterations)
        return int(min(wanted, most, self.num_left))

    def note(self, num_made: int, largest_change: float) -> None:
        """Take in some iterations and the last change; where a window ends without progress the stage ends."""
        if not num_made:
            return
        self.num_iterations += num_made
        self.largest_change = largest_change
        self.history.append((self.num_iterations, largest_change))
        self._smallest = min(self._smallest, largest_change)
        if self.num_iterations >= self._window_end:
            self._end_window()

    @property
    def _is_last_stage(self) -> bool:
        """Whether there is no more damping to be tried."""
        return self._stage + 1 == len(self._stages)

    def _end_window(self) -> None:
        """Go to the next stage, or note that the messages cycle, if this window brought no progress."""
        is_last = self._is_last_stage
        ratio = LAST_PROGRESS_RATIO if is_last else PROGRESS_RATIO
        if self._smallest > ratio * self._smallest_before:
            self._has_cycled = is_last
            if not is_last:
                self._stage += 1
            self._smallest_before = math.inf
        else:
            self._smallest_before = self._smallest
        self._smallest = math.inf
        self._window_end = self.num_iterations + self._window()

    def _window(self) -> float:
        """Iterations of one window of the present stage."""
        if self._is_last_stage:
            return float(LAST_WINDOW_ITERATIONS)
        return WINDOW_ITERATIONS / (1.0 - self.damping)
