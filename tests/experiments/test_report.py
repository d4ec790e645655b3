from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix.errors import FormatError
from fastmix.experiments import EXPERIMENTS, Settings, run_experiment, write_report
from fastmix.experiments.figures import STYLES, Figure
from fastmix.experiments.journal import Journal, write_settings
from fastmix.experiments.report import save_figure
from fastmix.experiments.run_experiment import describe_machine
from fastmix.experiments.trials import encode_map

sys.path.insert(0, str(Path(__file__).parent))
from experiment_helpers import made_up_rows

pytest.importorskip("matplotlib")

SETTINGS = Settings(num_trials=2, quick=True)
SHOWN = ("strength-grid", "samples-grid", "timing", "denoise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as runs leave it, with made-up rows, one of them a failure with a message that needs escaping."""
    root = tmp_path_factory.mktemp("report")
    patch = pytest.MonkeyPatch()
    fewer = replace(EXPERIMENTS["samples-grid"], quick_strengths=(0.0, 4.0))  # drawing takes most of the time here
    patch.setitem(EXPERIMENTS, "samples-grid", fewer)
    for name in SHOWN:
        if name == "denoise":
            pytest.importorskip("skimage")
        rows = made_up_rows(name, SETTINGS, inner_iterations=5, truth_error=0.004)
        if name == "denoise":  # pictures of more methods are drawn like these
            rows = [row for row in rows if row["method"] in ("euclidean", "reversed-kl")]
        for row in rows:
            if name == "denoise":
                shape = row["parameters"]["rows"], row["parameters"]["cols"]
                picture = encode_map(np.random.default_rng(0).random(shape))
                row["facts"] |= {"maps": dict.fromkeys(("clean", "observed", "truth"), picture), "map": picture}
        if name == "strength-grid":
            rows[3]["failure"] = "ValueError: <script>alert(1)</script> & co"
        Journal(root, name).append(rows)
        write_settings(root, EXPERIMENTS[name], SETTINGS, describe_machine())
    write_report(root)
    yield root
    patch.undo()


def figures_of(folder: Path, name: str) -> list[Figure]:
    shown = EXPERIMENTS[name].draw(EXPERIMENTS[name], SETTINGS, Journal(folder, name).read())
    return [one for one in shown if isinstance(one, Figure)]


class Page(HTMLParser):
    """What a page holds: its tags, where it points to, and whether all that opens is closed."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.stack.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "action", "srcset") and value:
                self.links.append(value)


def test_page_is_whole_and_needs_nothing_else(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.stack == []
    assert "script" not in page.tags
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in text
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert len(set(page.ids)) == len(page.ids), "drawings share the names of their parts"
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert str(folder) not in text


def test_every_figure_is_a_file_and_on_the_page(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    names = [figure.name for name in SHOWN for figure in figures_of(folder, name)]
    assert len(names) == 1 + 2 + 0 + 1 + 2
    for name in names:
        assert f'id="figure-{name}"' in text
        svg, png = folder / f"{name}.svg", folder / f"{name}.png"
        assert "<svg" in svg.read_text(encoding="utf-8")
        assert png.read_bytes().startswith(b"\x89PNG")
        assert png.stat().st_size > 5000


def test_settings_machine_and_the_paper_s_seconds_are_told(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    started = json.loads((folder / "timing.settings.json").read_text("utf-8"))["started"]
    for fact in ("Seed", started, "norm_bound=2.5", "Processor", "numba"):
        assert fact in text
    for seconds in ("22.42 s", "254.25 s", "164.34 s", "1.50 s"):
        assert f"<td>{seconds}</td>" in text
    assert "<td>100,000</td>" in text  # the paper's cost of the Euclidean projection, in sweeps
    assert "<td>480,000</td>" in text


def test_same_rows_same_figures_and_numbers_behind_them(folder: Path) -> None:
    before = (folder / "strength-grid.svg").read_bytes()
    figure = figures_of(folder, "strength-grid")[0]
    save_figure(figure, folder)
    assert (folder / "strength-grid.svg").read_bytes() == before
    with (folder / "strength-grid.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    points = [p for panel in figure.panels for curve in panel.curves.values() for p in curve]  # type: ignore[union-attr]
    assert [float(row["mean"]) for row in rows] == pytest.approx([y for _, y, _ in points], rel=1e-5)


def small_folder(root: Path, change: Callable[[Any], None] | None = None) -> Path:
    """A folder with few rows and without figures to draw, its first row changed."""
    rows = made_up_rows("strength-random", SETTINGS)[:4]
    if change is not None:
        change(rows[0])
    Journal(root, "strength-random").append(rows)
    facts = {"settings": asdict(SETTINGS), "machine": {"Processor": "<img src=x>"}, "started": "<img src=y>"}
    (root / "strength-random.settings.json").write_text(json.dumps(facts))
    return root


def test_fields_of_failed_rows_are_text(tmp_path: Path) -> None:
    def hostile(row: Any) -> None:
        row |= {"failure": "<img src=1>", "method": "<img src=2>", "error": None}
        row["facts"] = {"<img src=4>": "<img src=5>"}
        row["options"] = {"<img src=6>": "<img src=7>"}
        row["parameters"]["<img src=8>"] = "<img src=9>"

    report, _ = write_report(small_folder(tmp_path, hostile))
    assert not re.search(r"<img src=\w", report.read_text("utf-8"))
    assert "&lt;img src=2&gt;, trial 0: &lt;img src=1&gt;" in report.read_text("utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.update(trial="<b>"),
        lambda row: row.update(failure=["<b>"]),
        lambda row: row.update(error="<b>"),
        lambda row: row["parameters"].clear(),
        lambda row: row["parameters"].update(strength="<b>"),
        lambda row: row["seconds"].update(total="<b>"),
    ],
)
def test_rows_that_are_not_ours_are_named(tmp_path: Path, change: Callable[[Any], None]) -> None:
    small_folder(tmp_path, change)
    with pytest.raises(FormatError, match=r"strength-random\.jsonl"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


FOREIGN = [
    b"", b"\x89PNG\r\n", b"no JSON", b"[]", b"1", b'"text"', b"{}", b'{"settings": {}}', b"[" * 100_000,
    b'{"settings": 1, "machine": {}, "started": ""}',
    b'{"settings": {"methods": 1}, "machine": {}, "started": ""}',
    b'{"settings": {"methods": null, "other": 1}, "machine": {}, "started": ""}',
    b'{"settings": {"methods": null, "num_trials": "x"}, "machine": {}, "started": ""}',
    b'{"settings": {"methods": null, "images": 5}, "machine": {}, "started": ""}',
    b'{"settings": {"methods": ["magic"]}, "machine": {}, "started": ""}',
    b'{"settings": {"methods": null}, "machine": [], "started": ""}',
]  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_settings_that_are_not_ours_are_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "timing.settings.json"
    path.write_bytes(content)
    for call in (write_report, lambda folder: run_experiment("strength-random", folder, num_trials=1, quick=True)):
        with pytest.raises(FormatError, match=r"timing\.settings\.json: .*settings"):
            call(tmp_path)
    assert path.read_bytes() == content
    assert sorted(tmp_path.iterdir()) == [path]


def test_nothing_to_report_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^output .*folder"):
        write_report(tmp_path)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"matplotlib.*\[plot\]"):
        run_experiment("timing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- colors --------------------------------------------------------------------------------------------------------


def linear(color: str) -> np.ndarray:
    values = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255.0
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (first, second))
    return (light[1] + 0.05) / (light[0] + 0.05)


def test_curves_stand_out_from_the_page() -> None:
    for look in STYLES.values():
        assert contrast(look.color, "#ffffff") >= 3.0  # what the accessibility guidelines ask of graphics


def test_curves_differ_without_color() -> None:
    """Colors, or else marker, dash or filling: whoever sees no colors tells all curves apart."""
    for a, b in itertools.combinations(STYLES.values(), 2):
        assert (a.marker, a.dash, a.hollow) != (b.marker, b.dash, b.hollow), f"{a.label} looks like {b.label}"


# -- in a browser ---------------------------------------------------------------------------------------------------

Browser = Callable[[int, bool], Any]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Opens a headless browser of a given width, with a light or a dark page."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    program, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))

    def prepare(width: int, dark: bool) -> Any:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        return window

    try:
        yield prepare
    finally:
        window.quit()


@pytest.mark.filterwarnings("ignore")  # of the browser driver, about its own pipes
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)])
def test_page_in_a_browser(browser: Browser, folder: Path, width: int, dark: bool) -> None:
    window = browser(width, dark)
    window.get((folder / "report.html").as_uri())
    deadline = time.monotonic() + 20
    while window.execute_script("return document.readyState") != "complete":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert window.get_log("browser") == []
    assert "fast mixing" in window.title
    facts = window.execute_script(
        """
        const boxes = [...document.querySelectorAll('figure .scroll')].map(e => e.getBoundingClientRect());
        const style = getComputedStyle(document.body);
        return {figures: document.querySelectorAll('figure').length, boxes: boxes.map(b => [b.left, b.right, b.height]),
                scroll: document.documentElement.scrollWidth, width: window.innerWidth, page: style.backgroundColor,
                pictures: [...document.images].every(i => i.complete && i.naturalWidth > 0),
                requests: performance.getEntriesByType('resource')
                  .filter(r => !r.name.startsWith('data:')).length};
        """
    )
    assert facts["figures"] == 1 + 2 + 1 + 2
    assert facts["scroll"] <= facts["width"] == width, "the page is wider than the window"
    assert all(left >= 0 and right <= width and height > 40 for left, right, height in facts["boxes"])
    assert facts["pictures"]
    assert facts["requests"] == 0
    shade = [int(part) for part in re.findall(r"\d+", facts["page"])[:3]]
    assert (max(shade) < 60) == dark
