"""Loopy belief propagation and mean field on 16x16 Ising grids: fastmix beside PGMax and pyGMs, on the same models.

    python benchmarks/loopy_bp.py [--repeat 7]

All get one thread and are timed in CPU time. Both peers need older libraries than fastmix: on first use the script
makes a virtual environment for them in .venv/pgmax, and runs them there in processes of their own. Building models and
compiling are not timed. fastmix is timed without damping, and with damping by 1/2 and 0.3. PGMax is timed in its usual
single precision, without damping; its fixed points, in double precision, are compared with those of fastmix. The sweeps
of pyGMs start and go as those of fastmix do, so the bounds after 50 are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np

# Imports of fastmix stay inside functions: the peers' environment runs this file too, and does not have it.

ENVIRONMENT = Path(__file__).resolve().parent.parent / ".venv" / "pgmax"
REQUIREMENTS = ["PGMax==0.6.1", "jax==0.4.26", "jaxlib==0.4.26", "numpy<2", "scipy<1.13", "pyGMs==0.4.1"]

CASES = [("attractive", 1.0), ("attractive", 2.0), ("mixed", 0.5), ("mixed", 1.0)]  # such that both converge
ITERATIONS = 2000  # of a timed call
FIXED_POINT_ITERATIONS = 3000  # damped by 1/2
SWEEPS = 50
TOLERANCE = 1e-6  # largest difference of two marginals, and relative of two bounds
RATIO_GOAL, ITERATION_GOAL_US, SWEEPS_GOAL_MS = 3.0, 16.0, 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7, metavar="N", help="timed calls of each library (default 7)")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}")
    if options.peer:
        print(json.dumps(PEERS[options.peer](options.model, options.repeat)))
        return 0
    have_peers = make_environment()
    right = run_propagation(options.repeat, have_peers)
    return 0 if run_mean_field(options.repeat, have_peers) and right else 1


# -- the tables -----------------------------------------------------------------------------------------------------


def run_propagation(repeat: int, have_peers: bool) -> bool:
    from fastmix.instances import ising_grid
    from fastmix.variational.loopy_bp import loopy_bp

    print(f"Loopy belief propagation, 16x16 Ising grids, all messages at once: CPU us an iteration, best of {repeat}")
    head = f"{'couplings':24}{'fastmix':>9}{'by 1/2':>9}{'by 0.3':>10}{'PGMax':>9}{'ratio':>8}{'difference':>12}"
    print(head + "   (difference: largest, of the marginals at the fixed point)")
    right = True
    for kind, coupling_max in CASES:
        model = ising_grid(16, 16, coupling_max=coupling_max, attractive=kind == "attractive", seed=0)
        plain, damped, powers = (1e6 * iteration_seconds(model, damping, repeat) for damping in (0.0, 0.5, 0.3))
        line = f"{f'{kind}, up to {coupling_max:g}':24}{plain:9.2f}{damped:9.2f}{powers:10.2f}"
        if not have_peers:
            print(line)
            continue
        peer = ask_peer("pgmax", model, repeat)
        result = loopy_bp(model, damping=0.5, max_iter=FIXED_POINT_ITERATIONS, tol=1e-12)
        difference = float(np.abs(result.node_marginals - np.array(peer["marginals"])).max())
        theirs = peer["us"]
        print(f"{line}{theirs:9.1f}{theirs / plain:8.1f}{difference:12.1e}", flush=True)
        right &= difference <= TOLERANCE
    print(f"  to reach: {RATIO_GOAL:g} times less than PGMax, {ITERATION_GOAL_US:g} us an iteration")
    if not right:
        print(f"benchmarks/loopy_bp.py: marginals differ by more than {TOLERANCE:g}", file=sys.stderr)
    return right


def iteration_seconds(model: Any, damping: float, repeat: int) -> float:
    from fastmix.variational.loopy_bp import make_messages

    messages = make_messages(model, message_order="parallel")
    # A tolerance that no change meets, so that every iteration is made and tested for convergence.
    return best_seconds(lambda: messages.advance(ITERATIONS, damping, -1.0), repeat) / ITERATIONS


def run_mean_field(repeat: int, have_peers: bool) -> bool:
    from fastmix.instances import ising_grid, potts_grid
    from fastmix.variational.mean_field import mean_field

    print(
        f"\nMean field, 16x16 grids, {SWEEPS} sweeps from the uniform start: CPU ms of the whole call, best of {repeat}"
    )
    right = True
    models = {
        "Ising, mixed, up to 1": ising_grid(16, 16, coupling_max=1.0, seed=0),
        "Potts, 3 states, up to 1": potts_grid(16, 16, coupling_max=1.0, seed=0),
    }
    for name, model in models.items():
        # A tolerance that no change meets: all sweeps are made.
        call = lambda m=model: mean_field(m, num_starts=1, max_iter=SWEEPS, tol=1e-300, seed=0)  # noqa: E731
        ours = 1e3 * best_seconds(call, repeat)
        result = call()
        made = result.stats["num_iterations"]
        line = f"{name:28} fastmix {ours:7.3f} ms for {made} sweeps"
        if have_peers and name.startswith("Ising"):
            peer = ask_peer("pygms", model, 1)
            difference = abs(result.log_z_lower - peer["bound"]) / abs(peer["bound"])
            right &= difference <= TOLERANCE
            line += f", pyGMs {peer['seconds']:.2f} s: {1e3 * peer['seconds'] / ours:,.0f} times, "
            line += f"bounds differ by {difference:.1e} of them"
        print(line, flush=True)
    print(f"  to reach: {SWEEPS_GOAL_MS:g} ms for {SWEEPS} sweeps of the Ising grid")
    if not right:
        print(f"benchmarks/loopy_bp.py: bounds differ by more than {TOLERANCE:g} of them", file=sys.stderr)
    return right


def best_seconds(work: Callable[[], object], repeat: int) -> float:
    work()  # compilation, caches
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


# -- the environment of the peers -----------------------------------------------------------------------------------


def make_environment() -> bool:
    """Whether the peers can be run; installs them on first use."""
    ready = ENVIRONMENT / "ready"
    if ready.exists():
        return True
    print(
        f"installing {', '.join(REQUIREMENTS)} into {ENVIRONMENT} (once, a minute or so)", file=sys.stderr, flush=True
    )
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True, capture_output=True)
        command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        last = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        print(f"PGMax and pyGMs cannot be installed, fastmix alone: {' '.join(last)}", file=sys.stderr)
        return False
    ready.touch()
    return True


def ask_peer(name: str, model: Any, repeat: int) -> dict[str, Any]:
    """What a peer answers for a model, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        unary, tables = model.log_unary.reshape(-1, 2), model.log_pairwise.reshape(-1, 2, 2)
        np.savez(path, unary=unary, edges=model.edges, tables=tables)
        command = [str(ENVIRONMENT / "bin" / "python"), __file__, "--peer", name, "--model", str(path)]
        done = subprocess.run([*command, "--repeat", str(repeat)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


# -- the peers, in their own environment ----------------------------------------------------------------------------


def peer_pgmax(path: Path, repeat: int) -> dict[str, Any]:
    """CPU microseconds an iteration in single precision; marginals after many iterations in double precision."""
    import functools

    import jax

    seconds = []
    run, arrays, _, _ = pgmax_model(path)
    timed = jax.jit(functools.partial(run, num_iters=ITERATIONS, damping=0.0))
    jax.block_until_ready(timed(arrays))
    for _ in range(repeat):
        start = time.process_time()
        jax.block_until_ready(timed(arrays))
        seconds.append(time.process_time() - start)
    jax.config.update("jax_enable_x64", True)
    jax.clear_caches()
    run, arrays, bp, variables = pgmax_model(path)
    final = jax.jit(functools.partial(run, num_iters=FIXED_POINT_ITERATIONS, damping=0.5))(arrays)[0]
    beliefs = np.asarray(bp.get_beliefs(final)[variables], dtype=np.float64)
    odds = np.exp(beliefs - beliefs.max(axis=1, keepdims=True))
    marginals = (odds / odds.sum(axis=1, keepdims=True)).ravel().tolist()
    best, median = 1e6 * min(seconds) / ITERATIONS, 1e6 * statistics.median(seconds) / ITERATIONS
    return {"us": best, "median_us": median, "marginals": marginals}


def pgmax_model(path: Path) -> tuple[Any, Any, Any, Any]:
    from pgmax import fgraph, fgroup, infer, vgroup

    with np.load(path) as data:
        unary, edges, tables = data["unary"], data["edges"], data["tables"]
    variables = vgroup.NDVarArray(num_states=2, shape=(len(unary),))
    graph = fgraph.FactorGraph(variable_groups=variables)
    pairs = [[variables[int(i)], variables[int(j)]] for i, j in edges]
    graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    bp = infer.BP(graph.bp_state, temperature=1.0)
    return bp.run_with_diffs, bp.init(evidence_updates={variables: unary}), bp, variables


def peer_pygms(path: Path, repeat: int) -> dict[str, Any]:
    """CPU seconds and bound of the sweeps."""
    from pygms.factor import Factor, Var
    from pygms.graphmodel import GraphModel
    from pygms.messagepass import NMF

    with np.load(path) as data:
        unary, edges, tables = data["unary"], data["edges"], data["tables"]
    names = [Var(i, 2) for i in range(len(unary))]
    factors = [Factor([names[i]], np.exp(unary[i])) for i in range(len(unary))]
    factors += [Factor([names[i], names[j]], np.exp(t)) for (i, j), t in zip(edges, tables, strict=True)]
    model = GraphModel(factors)
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        bound, beliefs = NMF(model, maxIter=SWEEPS)
        seconds.append(time.process_time() - start)
    marginals = np.concatenate([np.asarray(beliefs[name].table).ravel() for name in names]).tolist()
    return {"seconds": min(seconds), "bound": float(bound), "marginals": marginals}


PEERS: dict[str, Callable[[Path, int], dict[str, Any]]] = {"pgmax": peer_pgmax, "pygms": peer_pygms}


if __name__ == "__main__":
    sys.exit(main())
