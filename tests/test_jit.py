"""Damaged files of compiled code are dropped and made anew."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fastmix import _jit, instances
from fastmix.io import write_model

SOURCE = Path(__file__).resolve().parent.parent / "src" / "fastmix"
RANDOM = np.random.default_rng(0).bytes(5000)

GONE = b"cfastmix._jit\nGone\n."  # pickled

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "last byte": lambda data: data[:-1],
    "random": lambda data: RANDOM,
    "a class that is gone": lambda data: hashlib.sha256(GONE).digest() + GONE,
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
}


def infer(folder: Path, *options: str) -> tuple[list[list[float]], list[str]]:
    """Marginals by the command line, with a cache of its own, and what it said."""
    words = ["infer", "grid.npz", "--method", "perfect", "--num-draws", "10", "--seed", "1", "--json"]
    command = [sys.executable, *options, "-m", "fastmix", *words]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["marginals"], done.stderr.splitlines()


@pytest.mark.first
def test_damaged_files_cost_a_line_and_nothing_else(tmp_path: Path) -> None:
    write_model(instances.ising_grid(4, 4, coupling_max=0.5, seed=0), tmp_path / "grid.npz")
    expected, said = infer(tmp_path)
    assert said == ["fastmix: compiling, which is done once and takes some seconds"]
    indices = sorted((tmp_path / "cache").rglob("*.nbi"))
    assert len(indices) >= 4
    damages = itertools.cycle(DAMAGES.values())
    # The index of some kernels, the code of the others: a damaged index hides its code.
    for index, damage in zip(indices[::2], damages, strict=False):
        index.write_bytes(damage(index.read_bytes()))
    for index, damage in zip(indices[1::2], damages, strict=False):
        for code in index.parent.glob(f"{index.stem}.*.nbc"):
            code.write_bytes(damage(code.read_bytes()))
    answer, said = infer(tmp_path)
    assert answer == expected
    assert len(said) == 2
    assert re.fullmatch(
        r"fastmix: .*\.nb[ic] in the compiler's cache is damaged or of another version: compiling again", said[0]
    )
    assert said[1].startswith("fastmix: compiling")
    answer, said = infer(tmp_path, "-X", "importtime")
    imports = [line for line in said if line.startswith("import time:")]
    assert (answer, len(imports)) == (expected, len(said))
    assert any("numba.core.caching" in line for line in imports)
    assert not any("numba.np.arraymath" in line for line in imports), "what compiles is loaded, but nothing is compiled"


# -- one kernel -----------------------------------------------------------------------------------------------------


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Loads a module with one kernel as a new process would; its files are in ``tmp_path / "cache"``."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "one_kernel.py").write_text(
        "from fastmix._jit import njit\n\n\n@njit(cache=True)\ndef double(x):\n    return 2 * x\n"
    )

    def fresh() -> Any:
        sys.modules.pop("one_kernel", None)
        _jit.told.clear()
        return importlib.import_module("one_kernel").double

    yield fresh
    sys.modules.pop("one_kernel", None)


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_each_damage(load: Callable[[], Any], tmp_path: Path, suffix: str, damage: str, caplog: Any) -> None:
    assert load()(3) == 6
    kernel = load()
    assert (kernel(3), hits(kernel)) == (6, 1)
    (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    kernel = load()
    assert (kernel(3), hits(kernel)) == (6, 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"fastmix: {path} in the compiler's cache is damaged or of another version: compiling again"
    ]
    kernel = load()  # mended
    assert (kernel(3), hits(kernel)) == (6, 1)


def test_files_of_another_time_are_not_mixed_up(load: Callable[[], Any], tmp_path: Path, caplog: Any) -> None:
    # Killed after the index was written and before the data: the data are those of another signature.
    assert load()(3) == 6
    (index,), (data,) = (list((tmp_path / "cache").rglob(f"*{suffix}")) for suffix in (".nbi", ".nbc"))
    of_integers = data.read_bytes()
    index.unlink()
    assert load()(1.5) == 3.0
    data.write_bytes(of_integers)
    kernel = load()
    assert (kernel(1.5), hits(kernel)) == (3.0, 0)
    assert caplog.records == []


def test_files_of_plain_numba_are_passed_over(load: Callable[[], Any], tmp_path: Path, caplog: Any) -> None:
    module = tmp_path / "one_kernel.py"
    checked = module.read_text()
    module.write_text(checked.replace("from fastmix._jit", "from numba"))
    stamp = module.stat()
    assert load()(3) == 6
    module.write_text(checked)
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    kernel = load()
    assert (kernel(3), hits(kernel)) == (6, 0)
    assert caplog.records == []


def test_a_cache_that_cannot_be_written_costs_no_answer(
    load: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    kernel = load()

    def refuse(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "_save_data", refuse)
    assert kernel(3) == 6
    assert kernel(1.5) == 3.0
    (record,) = caplog.records
    assert "compiled code is not kept" in record.getMessage()
    assert "No space left" in record.getMessage()


def test_without_a_place_for_a_cache(load: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    assert load()(3) == 6
    (record,) = caplog.records
    assert "NUMBA_CACHE_DIR can name one" in record.getMessage()


def test_files_of_kernels_for_a_gpu_as_well(load: Callable[[], Any], tmp_path: Path, caplog: Any) -> None:
    pytest.importorskip("numba_cuda")
    module = tmp_path / "one_kernel.py"
    module.write_text(module.read_text().replace("njit", "cuda_jit"))
    files = load()._cache._cache_file  # which needs no GPU
    Path(files._cache_path).mkdir(parents=True, exist_ok=True)
    key = (numba.int64, "a processor")
    files.save(key, {"code": b"..."})
    assert files.load(key) == {"code": b"..."}
    (path,) = (tmp_path / "cache").rglob("*.nbc")
    path.write_bytes(path.read_bytes()[:-1])
    assert files.load(key) is None
    assert len(caplog.records) == 1


def test_every_kernel_is_made_here() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name != "_jit.py":
            assert not re.search(r"numba\.njit|import njit|cuda\.jit\(cache", path.read_text().replace(
                "from fastmix._jit import njit", "")), f"{path}: use njit and cuda_jit of fastmix._jit"  # fmt: skip
