"""A figure of the paper.

Figure 1 of Liu and Domke (2014) in small: marginal errors on random graphs against the strength of the couplings, of
Gibbs sampling before and after projection and of variational methods. [The experiments](../experiments.md) have the
whole of it.
"""

from fastmix.experiments import run_experiment

result = run_experiment("strength-random", "out", quick=True, num_trials=1)
print(f"{result.num_run} rows, status {result.status}")
