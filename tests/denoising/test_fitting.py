"""Settings that are learnt from a picture: within their share of the time, and of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from contexts import context_of
from fastmix import _memory
from fastmix._clock import NO_LIMIT, Clock
from fastmix.denoising import denoise, fitting
from fastmix.errors import ResourceError


def test_learning_the_settings_ends_with_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = fitting._draw
    monkeypatch.setattr(fitting, "_draw", lambda *given: drawn.append(1) or draw(*given))
    rng = np.random.default_rng(0)
    for _ in range(5):
        image = rng.random((30, 40))
        fitting.fit_picture(image, None, context_of(limit=1e-6))
        assert not drawn
    fitting.fit_picture(image, None, context_of(limit=1000.0))
    assert len(drawn) == 8


@pytest.mark.parametrize("labels", [1000, 1_000_000, 10**12])
def test_labels_that_do_not_fit_the_memory_are_refused(labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_clusters", None)  # nothing is allocated
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**30)
    with pytest.raises(ResourceError, match=rf"\b{labels:,} labels .*fewer"):
        denoise(np.zeros((20, 20)), num_labels=labels)


def test_short_limits_fit_fewer_pixels_and_long_ones_all() -> None:
    counts = [fitting._pixels_in_time(12, Clock(seconds)) for seconds in (1e-3, 2.0, 10.0, 1000.0)]
    assert counts == sorted(counts)
    assert counts[0] == fitting.MIN_FITTED_PIXELS < counts[1]
    assert counts[-1] == fitting._pixels_in_time(12, NO_LIMIT)
    assert fitting._pixels_in_time(2, Clock(2.0)) > fitting._pixels_in_time(12, Clock(2.0))
    rng = np.random.default_rng(0)
    picture = np.where(np.arange(200) < 100, 0.2, 0.8) + rng.normal(scale=0.1, size=(200, 200))
    short, long = (fitting.fit_picture(picture, None, context_of(limit=seconds)) for seconds in (5.0, 1000.0))
    np.testing.assert_allclose(short.levels, long.levels, atol=0.02)
    assert len(short.levels) == 2
