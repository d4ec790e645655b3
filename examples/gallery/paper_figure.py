"""A figure of the paper.

Figure 1 of Liu and Domke (2014) in small: marginal errors on random graphs with attractive couplings against their
strength, of Gibbs sampling before and after projection and of variational methods. [The
experiments](../experiments.md) have the whole of it.
"""

from fastmix.experiments import run_experiment

methods = ["mean-field", "loopy-bp", "gibbs", "euclidean", "reversed-kl-default"]
chosen = {"kinds": ["attractive"], "methods": methods}
result = run_experiment("strength-random", "out", quick=True, num_trials=10, **chosen)
print(f"{result.num_run} rows, status {result.status}")
