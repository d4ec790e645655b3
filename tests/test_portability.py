"""What other systems lack is taken away here: file locks, signals, files of Linux, UTF-8 as the usual encoding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastmix import _checks
from fastmix._locks import lock_file
from fastmix.executors import processes
from fastmix.experiments.journal import Journal
from fastmix.instances import ising_grid
from fastmix.io import files, read_model, write_model
from pool_tasks import double

MODEL = ising_grid(3, 3, coupling_max=0.5, seed=0)
LEFTOVER = ".fastmix-{host}-0123456789abcdef.tmp"


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without the module that locks files."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(files, "SWEPT", set())


# -- files -----------------------------------------------------------------------------------------------------------


def test_locks_say_where_there_are_none(no_locks: None, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as stream:
        assert lock_file(stream.fileno()) is None


def test_files_are_written_without_locks(no_locks: None, tmp_path: Path) -> None:
    leftover = tmp_path / LEFTOVER.format(host=files._host())
    leftover.write_bytes(b"of another process, perhaps")
    write_model(MODEL, tmp_path / "model.uai")
    assert read_model(tmp_path / "model.uai").num_variables == 9
    assert leftover.exists()  # nothing says that it is not in use


def test_files_are_written_without_owners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "SWEPT", set())
    for name in ("getuid", "O_NONBLOCK", "O_NOFOLLOW"):
        monkeypatch.delattr(os, name)
    leftover = tmp_path / LEFTOVER.format(host=files._host())
    leftover.write_bytes(b"of another user, perhaps")
    write_model(MODEL, tmp_path / "model.uai")
    assert leftover.exists()


def test_leftovers_go_where_there_are_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    monkeypatch.setattr(files, "SWEPT", set())
    leftover = tmp_path / LEFTOVER.format(host=files._host())
    leftover.write_bytes(b"of a process that is gone")
    write_model(MODEL, tmp_path / "model.uai")
    assert not leftover.exists()


def test_journals_of_experiments_are_written_without_locks(no_locks: None, tmp_path: Path) -> None:
    with Journal(tmp_path, "x").lock(), Journal(tmp_path, "x").lock():
        pass
    assert (tmp_path / "x.jsonl").exists()


# -- the machine -----------------------------------------------------------------------------------------------------


def test_processors_are_counted_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert _checks.count_processors.__wrapped__() == 7


def test_workers_start_without_masks_of_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask", raising=False)
    with processes(1) as executor:
        assert executor.submit(double, 3).result() == 6


# -- encodings and names -----------------------------------------------------------------------------------------------

NETWORK = """network Wetter { }
variable season { type discrete [ 2 ] { winter, summer }; }
variable Kälte { type discrete [ 2 ] { große, keine }; }
variable 雨 { type discrete [ 2 ] { はい, いいえ }; }
probability ( season ) { table 0.5, 0.5; }
probability ( Kälte | season ) { (winter) 1.0, 0.0; (summer) 0.5, 0.5; }
probability ( 雨 | Kälte ) { (große) 0.9, 0.1; (keine) 0.2, 0.8; }
"""


def path_of(name: str) -> str:
    """The name of a file in UTF-8 as Python has it here, also where these tests run in such a locale themselves."""
    return os.fsdecode(name.encode())


def run_in_ascii(*words: object) -> subprocess.CompletedProcess[bytes]:
    """A command where the system's encoding is ASCII and every text file opened without an encoding is an error."""
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONWARNDEFAULTENCODING": "1"}
    command = [sys.executable, "-W", "error::EncodingWarning:fastmix", "-m", "fastmix", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True)


def test_names_and_paths_beyond_ascii_in_an_ascii_locale(tmp_path: Path) -> None:
    folder = tmp_path / path_of("ein Ordner – 模型")
    folder.mkdir()
    model = folder / "Wetter morgen.bif"
    model.write_text(NETWORK, "utf-8")
    answer = folder / path_of("Antwort ü.json")
    done = run_in_ascii("infer", model, "-e", "season=winter", "-o", answer)
    assert (done.returncode, done.stderr.count(b"\n")) == (0, 1)  # the guarantee
    found = json.loads(answer.read_text("utf-8"))
    assert found["variable_names"] == ["season", "Kälte", "雨"]
    assert found["marginals"][2] == pytest.approx([0.9, 0.1])
    shown = run_in_ascii("infer", model)
    assert shown.returncode == 0
    assert rb"K\xe4lte" in shown.stdout  # what the encoding cannot show is escaped
    converted = run_in_ascii("convert", model, folder / path_of("Kopie – 2.uai"))
    assert converted.returncode == 0
    assert read_model(folder / path_of("Kopie – 2.uai")).num_variables == 3


def test_a_missing_file_beyond_ascii_is_one_line(tmp_path: Path) -> None:
    done = run_in_ascii("infer", tmp_path / path_of("nicht da – 無.uai"))
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"nicht da" in done.stderr
