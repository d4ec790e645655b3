"""Exact inference: fastmix beside pyAgrum, on the same models in the same run; 16x16 Ising grids, or files.

Both get one thread and are timed in CPU seconds, turn by turn. fastmix computes node marginals, edge marginals and
log Z; pyAgrum node marginals. Building the models is not timed on either side; finding the junction tree is, on both.

With ``--files`` models of UAI and BIF files are answered, with the evidence beside them: seconds of the whole answer,
the best of three runs, its estimate before, treewidth, memory, and the largest differences from the reference files
(``.PR``: log10 Z, ``.MAR``: marginals, six digits each). ``--peers`` adds pyAgrum and, for log Z alone, opt_einsum and
cotengra, each in a process of its own that ends after a limit of seconds or of 8 GiB.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from numpy.typing import NDArray

from fastmix import InferenceResult, MarkovRandomField, ResourceError, infer
from fastmix.exact import plan_exact
from fastmix.instances import ising_grid
from fastmix.io import read_evidence, read_mar, read_model, read_pr

FloatArray = NDArray[np.float64]

CASES = [(kind, coupling_max) for kind in ("attractive", "mixed") for coupling_max in (1.5, 3.0)]
TOLERANCE = 1e-9  # largest difference of two marginals where both libraries answer
LARGE_SECONDS, LARGE_BYTES = 180.0, 12 * 2**30

# Seconds of a whole answer to reach, by file.
TARGETS = {
    "ObjectDetection_11": 0.2, "ObjectDetection_15": 0.25, "ObjectDetection_22": 0.2, "ObjectDetection_28": 0.6,
    "Grids_11": 0.15, "Segmentation_11": 0.04, "CSP_11": 1.2, "Promedus_13": 0.1, "Promedus_24": 0.1,
    "Alchemy_11": 0.3, "Pedigree_11": 0.2,
}  # fmt: skip
PEERS = ("pyAgrum", "opt_einsum", "cotengra")
PEER_BYTES = 8 * 2**30

_FIRST_CALL = """
import time
from fastmix import infer
from fastmix.instances import ising_grid
model = ising_grid(16, 16, coupling_max=1.5, seed=0)
start = time.process_time()
infer(model)
print(time.process_time() - start)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7, metavar="N", help="timed calls of each library (default 7)")
    parser.add_argument("--large", action="store_true", help="only a 20x20 grid with fastmix: seconds and peak memory")
    parser.add_argument("--files", nargs="+", type=Path, metavar="PATH", help="UAI and BIF files, or folders of them")
    parser.add_argument("--peers", action="store_true", help=f"{', '.join(PEERS)} on the files too")
    parser.add_argument("--peer-seconds", type=int, default=120, metavar="N", help="that a peer has for a file")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}")
    if options.files:
        files = [f for p in options.files for f in (sorted(p.iterdir()) if p.is_dir() else [p])]
        return run_files(files, options.peer_seconds if options.peers else 0)
    return run_large() if options.large else run_comparison(options.repeat)


def run_comparison(repeat: int) -> int:
    try:
        import pyagrum
    except ImportError:
        print("benchmarks/exact.py: needs pyAgrum: pip install 'fastmix[bench]'", file=sys.stderr)
        return 2
    pyagrum.setNumberOfThreads(1)
    print(f"16x16 Ising grids, one thread, CPU seconds, best and median of {repeat}, pyAgrum {pyagrum.__version__}")
    print(f"first call of fastmix, compiling: {first_call():.2f} s, compiled before: {first_call(compiled=True):.2f} s")
    print(f"{'':24}{'fastmix':>17}{'pyAgrum':>17}{'ratio':>15}{'largest':>12}")
    print(f"{'couplings':24}{'best':>8}{'median':>9}{'best':>8}{'median':>9}{'best':>7}{'median':>8}{'difference':>12}")
    worst = 0.0
    for kind, coupling_max in CASES:
        model = ising_grid(16, 16, coupling_max=coupling_max, attractive=kind == "attractive", seed=0)
        peer = pyagrum_model(model)
        infer(model)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(repeat):
            result = timed(lambda: infer(model), ours)  # noqa: B023
            posteriors = timed(lambda: pyagrum_posteriors(peer, model), theirs)  # noqa: B023
        difference = compare(result, posteriors)
        worst = max(worst, 0.0 if difference is None else difference)
        best = min(ours), min(theirs)
        median = statistics.median(ours), statistics.median(theirs)
        print(
            f"{f'{kind}, up to {coupling_max:g}':24}{best[0]:8.3f}{median[0]:9.3f}{best[1]:8.3f}{median[1]:9.3f}"
            f"{best[1] / best[0]:7.1f}{median[1] / median[0]:8.1f}"
            f"{'pyAgrum NaN' if difference is None else f'{difference:.1e}':>12}"
        )
    if not worst <= TOLERANCE:
        print(f"benchmarks/exact.py: marginals differ by {worst:.2g}, more than {TOLERANCE:g}", file=sys.stderr)
        return 1
    return 0


def run_large() -> int:
    model = ising_grid(20, 20, coupling_max=3.0, attractive=True, seed=0)
    infer(ising_grid(16, 16, coupling_max=1.5, seed=0))  # compiles
    wall, cpu = time.perf_counter(), time.process_time()
    result = infer(model)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert result.log_z is not None
    assert np.isfinite(result.node_marginals).all()
    print(f"20x20 Ising grid, attractive, couplings up to 3, one thread: log Z = {result.log_z:.6f}")
    print(f"{wall:.2f} s ({cpu:.2f} s CPU), peak memory of the process {peak / 2**30:.2f} GiB")
    if wall > LARGE_SECONDS or peak > LARGE_BYTES:
        print(f"benchmarks/exact.py: over {LARGE_SECONDS:g} s or {LARGE_BYTES / 2**30:g} GiB", file=sys.stderr)
        return 1
    return 0


def run_files(files: list[Path], peer_seconds: int) -> int:
    heads = f"{'plan':>7}{'estimate':>10}{'width':>7}{'MiB':>7}{'log10 Z':>10}{'marginals':>11}"
    print(
        f"{'':20}{'seconds':>9}{'target':>8}{heads}{''.join(f'{name:>11}' for name in PEERS) if peer_seconds else ''}"
    )
    for file in files:
        if file.suffix != ".uai" and ".bif" not in file.suffixes:
            continue
        name = file.name.split(".")[0]
        beside = file.with_name(file.name + ".evid")
        evidence = read_evidence(beside) if beside.exists() else None
        seconds: list[float] = []
        planning: list[float] = []
        try:
            for _ in range(3):
                model = read_model(file)  # a new one for each, with which nothing is kept
                plan = timed(lambda: plan_exact(model, evidence=evidence, memory_limit=8 * 2**30), planning)  # noqa: B023
                model = read_model(file)
                result = timed(lambda: infer(model, method="exact", evidence=evidence, memory_limit=8 * 2**30), seconds)  # noqa: B023
        except ResourceError as error:
            print(f"{name:20}{'':9}  {error}")
            continue
        target = f"{TARGETS[name]:g}" if name in TARGETS else ""
        figures = f"{plan.seconds:10.3f}{plan.elimination.treewidth:7d}{plan.elimination.required_bytes / 2**20:7.0f}"
        line = f"{name:20}{min(seconds):9.3f}{target:>8}{min(planning):7.3f}{figures}{errors(file, result)}"
        if peer_seconds:
            given = model.condition(evidence) if evidence else model
            line += "".join(f"{limited(partial(prepared, peer, given), peer_seconds):>11}" for peer in PEERS)
        print(line, flush=True)
    return 0


def errors(file: Path, result: InferenceResult) -> str:
    """Differences from the reference files, where they are."""
    partition, marginals = file.with_name(file.name + ".PR"), file.with_name(file.name + ".MAR")
    assert result.log_z is not None
    if not partition.exists():
        return f"{abs(result.log_z) / math.log(10):10.1e}{'':11}"
    error_z = abs(result.log_z / math.log(10) - read_pr(partition))
    error = np.abs(result.node_marginals - np.concatenate(read_mar(marginals))).max()
    return f"{error_z:10.1e}{error:11.1e}"


def limited(prepare: Callable[[], Callable[[], Any]], limit: int) -> str:
    """CPU seconds of a call, without those of preparing it, in a process of its own; or what became of it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(limit)
        resource.setrlimit(resource.RLIMIT_AS, (PEER_BYTES, PEER_BYTES))
        spent: list[float] = []
        try:
            timed(prepare(), spent)
            os.write(write, f"{spent[0]:.3f}".encode())
        except Exception as error:
            os.write(write, type(error).__name__[:10].encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read() or f"> {limit}"


def prepared(peer: str, model: MarkovRandomField) -> Callable[[], Any]:
    """The call that a peer is timed with: posteriors, or log Z with all tables scaled to a largest entry of one."""
    if peer == "pyAgrum":
        other = pyagrum_model(model)
        return lambda: pyagrum_posteriors(other, model)
    terms = [([i], model.unary(i)) for i in range(model.num_variables)]
    terms += [([i, j], model.table(i, j)) for i, j in model.edges.tolist()]
    terms += [(scope.tolist(), table) for scope, table in model.factors]
    scale = sum(float(table.max()) for _, table in terms)
    scopes, tables = [tuple(scope) for scope, _ in terms], [np.exp(table - table.max()) for _, table in terms]
    if peer == "cotengra":
        import cotengra

        return lambda: scale + math.log(float(cotengra.array_contract(tables, scopes, (), optimize="auto")))
    import opt_einsum

    operands = [part for pair in zip(tables, scopes, strict=True) for part in pair]
    return lambda: scale + math.log(float(opt_einsum.contract(*operands, (), optimize="auto")))


def first_call(*, compiled: bool = False) -> float:
    """CPU seconds of the first call in a new process, with an empty or a filled cache of compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for _ in range(2 if compiled else 1):
            command = [sys.executable, "-c", _FIRST_CALL]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def timed(call: Callable[[], Any], seconds: list[float]) -> Any:
    start = time.process_time()
    answer = call()
    seconds.append(time.process_time() - start)
    return answer


def pyagrum_model(model: MarkovRandomField) -> Any:
    """The same factors as a pyAgrum model."""
    import pyagrum

    peer = pyagrum.MarkovRandomField()
    names = [f"x{i}" for i in range(model.num_variables)]
    for name, count in zip(names, model.num_states.tolist(), strict=True):
        peer.add(pyagrum.RangeVariable(name, "", 0, count - 1))
    for i, name in enumerate(names):
        peer.addFactor([name]).fillWith(np.exp(model.unary(i)).tolist())
    for i, j in model.edges.tolist():  # the first variable of a factor changes fastest
        peer.addFactor([names[i], names[j]]).fillWith(np.exp(model.table(i, j)).T.reshape(-1).tolist())
    for scope, table in model.factors:
        peer.addFactor([names[v] for v in scope]).fillWith(np.exp(table).T.reshape(-1).tolist())
    return peer


def pyagrum_posteriors(peer: Any, model: MarkovRandomField) -> FloatArray:
    """Junction tree, messages and the posterior of every variable, as one flat array."""
    import pyagrum

    inference = pyagrum.ShaferShenoyMRFInference(peer)
    inference.setNumberOfThreads(1)
    inference.makeInference()
    return np.concatenate([inference.posterior(f"x{i}").toarray() for i in range(model.num_variables)])


def compare(result: InferenceResult, posteriors: FloatArray) -> float | None:
    """Largest difference of two probabilities; None where pyAgrum has no answer."""
    if np.isnan(posteriors).any():
        return None
    return float(np.abs(result.node_marginals - posteriors).max())


if __name__ == "__main__":
    sys.exit(main())
