"""Draws docs/figures/rooms.svg: the rooms of the package, and the way of a call through them.

    python docs/draw_rooms.py

All text stands on boxes of its own color, so that the picture can be read on light and on dark pages. What a layer
imports lies below it, or in it further to the right; the layers are those of ORDER in tests/test_ceilings.py.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

TARGET = Path(__file__).parent / "figures" / "rooms.svg"

# From the top of the page, what nothing else imports, to the ground: the title of a layer, its rooms, and its color.
LAYERS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("the command line", ("cli",), "#f6d5c8"),
    (
        "applications",
        ("torch", "jax", "dimod", "sklearn", "warming", "testing", "experiments", "crf", "denoising"),
        "#f9e2c0",
    ),
    ("verbs that need several rooms", ("queries", "learning", "gradients", "inference"), "#f5eab0"),
    ("built on the engines", ("sampling", "projection", "bounds", "variational", "modes"), "#dcecbf"),
    ("engines", ("chains", "describe", "exact", "theory"), "#c4e6d0"),
    ("every call, every method", ("_signatures", "method", "_context", "_checkpoint"), "#c5e3ec"),
    ("results and files", ("interop", "io", "marginals", "results"), "#cddcf2"),
    ("data", ("instances", "model", "graphs"), "#dcd6f0"),
    (
        "the ground",
        (
            "estimates", "executors", "_engine", "_student", "_stopping", "_show", "_loops", "_jit", "_clock",
            "_registry", "_checks", "_memory", "_locks", "_arrays", "errors",
        ),
        "#e4e4e4",
    ),
)  # fmt: skip
# The way of fastmix.sample(model, evidence=..): what is done, and the layer in which it is.
STEPS = (
    ("sample() checks its arguments, makes a Gibbs", 3),
    ("open_context: seed, clock, progress, backend", 5),
    ("Method.reduce takes the evidence out", 7),
    ("Method.run: Chains.sweep until clock.past()", 4),
    ("SampleResult, expanded to all variables", 6),
    ("Context.finish: seconds, provenance, Ctrl-C", 5),
)

WIDTH = 1000
ROW = 58  # height of a layer, with the gap below it
TOP = 10
ROOMS = 10  # where the column of the rooms begins
ROOMS_WIDTH = 590
CALL = 620  # where the column of the call begins
CALL_WIDTH = WIDTH - CALL - 10
INK = "#222222"
BADGE = "#3b5b92"


def text(x: float, y: float, words: str, *, size: int = 13, bold: bool = False, color: str = INK) -> str:
    """Some words at a place."""
    weight = "bold" if bold else "normal"
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{color}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{color}"/>'


def badge(x: float, y: float, number: int) -> str:
    """The number of a step in a circle."""
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{BADGE}"/>'
    return circle + text(x - 4, y + 5, str(number), bold=True, color="#ffffff")


def layer(place: int) -> list[str]:
    """The box of a layer with its title and its rooms, and the numbers of the steps that are done there."""
    title, rooms, color = LAYERS[place]
    y = TOP + place * ROW
    lines = [",  ".join(rooms)]
    if len(rooms) >= 8:  # in two lines of small letters
        half = (len(rooms) + 1) // 2
        lines = [", ".join(rooms[:half]) + ",", ", ".join(rooms[half:])]
    size, first = (14, 40) if len(lines) == 1 else (11, 32)
    steps = [number for number, (_, where) in enumerate(STEPS, start=1) if where == place]
    badges = [badge(ROOMS + ROOMS_WIDTH - 22 - 28 * k, y + 25, number) for k, number in enumerate(reversed(steps))]
    return [
        box(ROOMS, y, ROOMS_WIDTH, ROW - 8, color),
        text(ROOMS + 12, y + (19 if len(lines) == 1 else 16), title, size=12),
        *(text(ROOMS + 12, y + first + 13 * k, line, size=size, bold=True) for k, line in enumerate(lines)),
        *badges,
    ]


def step(number: int) -> list[str]:
    """The box of a step of the call."""
    y = TOP + number * ROW
    words, _ = STEPS[number - 1]
    return [
        box(CALL, y, CALL_WIDTH, ROW - 8, "#eeeeee"),
        badge(CALL + 24, y + 25, number),
        text(CALL + 46, y + 30, words),
    ]


def picture() -> str:
    """The whole picture."""
    height = TOP + len(LAYERS) * ROW + 2
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    label = "<title>The rooms of fastmix from the command line down to the ground, and the way of a call</title>"
    heading = text(CALL + 12, TOP + 30, "The way of fastmix.sample(model, evidence=..)", size=14, bold=True)
    parts = [box(CALL, TOP, CALL_WIDTH, ROW - 8, "#dddddd"), heading]
    for place in range(len(LAYERS)):
        parts += layer(place)
    for number in range(1, len(STEPS) + 1):
        parts += step(number)
    return "\n".join([head, label, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture(), "utf-8")
