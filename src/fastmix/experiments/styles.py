"""How each method is called and drawn: one palette for all figures, safe for colour-blind readers, for light and dark.

Colours are those of Okabe and Ito, made darker on white and lighter on black until they stand out from the page;
markers and dashes tell the curves apart without any colour.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GRID", "INK", "STYLES", "Style", "style"]

INK = "#1f2933"  # text and axes; the colour of the text around on the page
GRID = "#d5dae1"


@dataclass(frozen=True)
class Style:
    """The look of one curve.

    Attributes
    ----------
    label : str
    light, dark : str
        Colour on a white and on a dark page.
    marker : str
        As in Matplotlib: ``o s ^ v D P X *``, or empty.
    dash : tuple of float
        On and off, in multiples of the line width; empty for a full line.
    hollow : bool
        Whether markers are drawn without filling.
    """

    label: str
    light: str
    dark: str
    marker: str = ""
    dash: tuple[float, ...] = ()
    hollow: bool = False


_PURPLE, _ORANGE, _GREY, _BLACK = (
    ("#a3438c", "#e792cc"),
    ("#b06a00", "#f2a93b"),
    ("#66707d", "#a3aebb"),
    ("#101820", "#f4f6f8"),
)
_BLUE, _GREEN, _RED = ("#0069a8", "#5ab8ee"), ("#007a5a", "#33c9a0"), ("#c94f00", "#ff8b52")
_OLIVE, _INDIGO = ("#7d6b00", "#e3d04e"), ("#4b45b5", "#aaa6ff")

STYLES: dict[str, Style] = {
    "mean-field": Style("Mean field", *_PURPLE, marker="v", dash=(1, 1)),
    "loopy-bp": Style("Loopy BP", *_ORANGE, marker="s", dash=(4, 1.5)),
    "gibbs": Style("Gibbs", *_GREY, marker="o", dash=(4, 1.5)),
    "gibbs-long": Style("Gibbs, long run", *_BLACK, marker="o"),
    "gibbs-extra": Style("Gibbs, plus the projection's time", *_GREY, marker="X", dash=(4, 1.5, 1, 1.5)),
    "swendsen-wang": Style("Swendsen-Wang", *_INDIGO, marker="*", dash=(2, 1)),
    "euclidean": Style("Projected, Euclidean", *_BLUE, marker="^"),
    "piecewise": Style("Projected, piecewise KL", *_GREEN, marker="D"),
    "reversed-kl": Style("Projected, reversed KL", *_RED, marker="P"),
    "kl": Style("Projected, true KL (intractable)", *_OLIVE, marker="*", dash=(6, 1.5)),
    "euclidean-spectral": Style("Euclidean, spectral norm", *_BLUE, marker="^", dash=(1, 1.5), hollow=True),
    "piecewise-spectral": Style("Piecewise KL, spectral norm", *_GREEN, marker="D", dash=(1, 1.5), hollow=True),
    "reversed-kl-spectral": Style("Reversed KL, spectral norm", *_RED, marker="P", dash=(1, 1.5), hollow=True),
    "piecewise-default": Style("Piecewise KL, our default", *_GREEN, marker="o", dash=(3, 1), hollow=True),
    "reversed-kl-default": Style("Reversed KL, our default", *_RED, marker="s", dash=(3, 1), hollow=True),
    "euclidean-dual": Style("Euclidean, the paper's dual", *_INDIGO, marker="s"),
    "euclidean-dual-spectral": Style("Euclidean, the paper's dual, spectral norm", *_INDIGO, marker="s", hollow=True),
}


def style(method: str) -> Style:
    """The look of a method; a plain one for a method without its own.

    Examples
    --------
    >>> style("loopy-bp").label
    'Loopy BP'
    """
    return STYLES.get(method, Style(method, *_BLACK, marker="."))
