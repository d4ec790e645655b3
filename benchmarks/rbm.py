"""Seconds per epoch of a restricted Boltzmann machine beside plain persistent contrastive divergence.

    python benchmarks/rbm.py [--backend cpu|cuda] [--threads 1] [--peers torch jax numpy products] [--score]

784 visible and 100 hidden units, 20,000 rows drawn from a random machine, 128 rows and 128 chains at a time, one sweep
per step. A peer is timed on the same device: torch (also on a GPU if it is built for it), jax (an epoch is one compiled
loop), NumPy, or the bare products of matrices (``products``, on the CPU). Prints JSON lines: seconds and CPU seconds
per epoch, the best of several, and with ``--score`` the log-likelihood of held-out rows with its standard error. Set
OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to ``--threads``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fastmix

VISIBLE, HIDDEN, ROWS, BATCH, STEP, RIDGE = 784, 100, 20_000, 128, 0.01, 1e-3


def draw(seed: int, rows: int) -> np.ndarray:
    """Rows of a machine whose hidden units are switched on in three cases of ten."""
    rng = np.random.default_rng(0)
    weights = 0.6 * rng.standard_normal((VISIBLE, HIDDEN)) * (rng.random((VISIBLE, HIDDEN)) < 0.2)
    offsets = -1.0 + 0.5 * rng.standard_normal(VISIBLE)
    rng = np.random.default_rng([1, seed])
    hidden = rng.random((rows, HIDDEN)) < 0.3
    return (rng.random((rows, VISIBLE)) < 1.0 / (1.0 + np.exp(-(hidden @ weights.T) - offsets))).astype(np.int8)


def torch_epochs(data: np.ndarray, backend: str, threads: int) -> Callable[[], None]:
    import torch

    torch.set_num_threads(threads)
    device = "cuda" if backend == "cuda" else "cpu"
    rows = torch.tensor(data, dtype=torch.float32, device=device)
    w, b, c = 0.01 * torch.randn(VISIBLE, HIDDEN), torch.zeros(VISIBLE), torch.zeros(HIDDEN)
    state = [w.to(device), b.to(device), c.to(device), rows[:BATCH].clone()]

    def epoch() -> None:
        w, b, c, chain = state
        order = torch.randperm(len(rows), device=device)
        for k in range(0, len(rows), BATCH):
            v = rows[order[k : k + BATCH]]
            mean = torch.sigmoid(v @ w + c)
            h = torch.bernoulli(torch.sigmoid(chain @ w + c))
            chain = torch.bernoulli(torch.sigmoid(h @ w.T + b))
            model = torch.sigmoid(chain @ w + c)
            w = w + STEP * (v.T @ mean / len(v) - chain.T @ model / BATCH - RIDGE * w)
            b = b + STEP * (v.mean(0) - chain.mean(0))
            c = c + STEP * (mean.mean(0) - model.mean(0))
        state[:] = [w, b, c, chain]
        if device == "cuda":
            torch.cuda.synchronize()

    return epoch


def jax_epochs(data: np.ndarray, backend: str, threads: int) -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    device = jax.devices("gpu" if backend == "cuda" else "cpu")[0]
    rows = jax.device_put(jnp.asarray(data, dtype=jnp.float32), device)
    whole = len(data) // BATCH * BATCH

    def step(carry: Any, chosen: Any) -> tuple[Any, None]:
        w, b, c, chain, key = carry
        key, one, two = jax.random.split(key, 3)
        v = rows[chosen]
        mean = jax.nn.sigmoid(v @ w + c)
        h = jax.random.bernoulli(one, jax.nn.sigmoid(chain @ w + c)).astype(jnp.float32)
        chain = jax.random.bernoulli(two, jax.nn.sigmoid(h @ w.T + b)).astype(jnp.float32)
        model = jax.nn.sigmoid(chain @ w + c)
        w = w + STEP * ((v.T @ mean - chain.T @ model) / BATCH - RIDGE * w)
        b = b + STEP * (v.mean(0) - chain.mean(0))
        c = c + STEP * (mean.mean(0) - model.mean(0))
        return (w, b, c, chain, key), None

    @jax.jit
    def run(carry: Any) -> Any:
        w, b, c, chain, key = carry
        key, other = jax.random.split(key)
        order = jax.random.permutation(other, len(data))[:whole].reshape(-1, BATCH)
        return jax.lax.scan(step, (w, b, c, chain, key), order)[0]

    key = jax.random.PRNGKey(0)
    first = 0.01 * jax.random.normal(key, (VISIBLE, HIDDEN))
    state = [jax.device_put((first, jnp.zeros(VISIBLE), jnp.zeros(HIDDEN), rows[:BATCH], key), device)]

    def epoch() -> None:
        state[0] = jax.block_until_ready(run(state[0]))

    return epoch


def numpy_epochs(data: np.ndarray, backend: str, threads: int) -> Callable[[], None]:
    rows, rng = data.astype(np.float32), np.random.default_rng(0)
    w = 0.01 * rng.standard_normal((VISIBLE, HIDDEN), dtype=np.float32)
    state = [w, np.zeros(VISIBLE, np.float32), np.zeros(HIDDEN, np.float32), rows[:BATCH].copy()]

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-x))

    def bernoulli(p: np.ndarray) -> np.ndarray:
        return (rng.random(p.shape, dtype=np.float32) < p).astype(np.float32)

    def epoch() -> None:
        w, b, c, chain = state
        order = rng.permutation(len(rows))
        for k in range(0, len(rows), BATCH):
            v = rows[order[k : k + BATCH]]
            mean = sigmoid(v @ w + c)
            chain = bernoulli(sigmoid(bernoulli(sigmoid(chain @ w + c)) @ w.T + b))
            model = sigmoid(chain @ w + c)
            w = w + STEP * (v.T @ mean / len(v) - chain.T @ model / BATCH - RIDGE * w)
            b, c = b + STEP * (v.mean(0) - chain.mean(0)), c + STEP * (mean.mean(0) - model.mean(0))
        state[:] = [w, b, c, chain]

    return epoch


def product_epochs(data: np.ndarray, backend: str, threads: int) -> Callable[[], None]:
    """Nothing but the six products of matrices that a step of the peers has."""
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((VISIBLE, HIDDEN), dtype=np.float32), data[:BATCH].astype(np.float32)
    h = rng.random((BATCH, HIDDEN), dtype=np.float32)

    def epoch() -> None:
        for _ in range(0, len(data), BATCH):
            for _ in range(3):
                v @ w
            h @ w.T
            for _ in range(2):
                v.T @ h

    return epoch


PEERS = {"torch": torch_epochs, "jax": jax_epochs, "numpy": numpy_epochs, "products": product_epochs}


def time_epochs(epoch: Callable[[], None], count: int) -> dict[str, float]:
    epoch()
    walls, cpus = [], []
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        epoch()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"seconds_per_epoch": min(walls), "cpu_seconds_per_epoch": min(cpus)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--peers", nargs="*", default=["torch"], choices=list(PEERS))
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--batch", type=int, default=BATCH)
    arguments = parser.parse_args()
    globals()["BATCH"] = arguments.batch
    data = draw(0, ROWS)
    marks: list[tuple[float, float]] = []

    def mark(_: Any) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    result = fastmix.learn(
        data, hidden=HIDDEN, ridge=RIDGE, max_iter=arguments.epochs, seed=0, backend=arguments.backend, progress=mark,
        num_chains=BATCH,
    )  # fmt: skip
    each = np.diff(np.array(marks), axis=0)
    line: dict[str, Any] = {"who": "fastmix", "backend": arguments.backend, "threads": arguments.threads}
    line["batch"] = arguments.batch
    line |= {"seconds_per_epoch": float(each[:, 0].min()), "cpu_seconds_per_epoch": float(each[:, 1].min())}
    line |= {"moment_error": result.moment_error, "status": str(result.status), "place": result.stats.get("backend")}
    print(json.dumps(line), flush=True)
    for peer in arguments.peers:
        try:
            times = time_epochs(PEERS[peer](data, arguments.backend, arguments.threads), max(3, arguments.epochs // 2))
        except (ImportError, RuntimeError) as error:
            print(json.dumps({"who": peer, "error": str(error)}), flush=True)
            continue
        print(
            json.dumps({"who": peer, "backend": arguments.backend, "threads": arguments.threads, **times}), flush=True
        )
    if arguments.score:
        held_out = np.hstack([draw(1, 2000), np.full((2000, HIDDEN), -1, dtype=np.int8)])
        begin = time.process_time()
        score = fastmix.score(result.model, held_out, tol=0.05, seed=0, backend=arguments.backend)
        line = {"who": "fastmix", "log_likelihood": score.log_likelihood, "std_error": score.std_error}
        line |= {"log_z_both_ways": score.log_z_both_ways, "status": str(score.status)}
        print(json.dumps({**line, "cpu_seconds": time.process_time() - begin}), flush=True)


if __name__ == "__main__":
    main()
