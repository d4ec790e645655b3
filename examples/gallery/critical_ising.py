"""Critical Ising observables.

A torus of 64x64 spins at the critical temperature, where single spins hardly move and Swendsen-Wang clusters do.
Every observable is one line, with its error bar. The exact values, from Kaufman's solution of the finite torus, are
-1.42394 for the energy per spin, 2.19221 for the specific heat per spin and 3808.672 for log Z. Log Z comes
from populations of chains that are annealed from independent spins.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmix

beta, n = np.log(1 + np.sqrt(2)) / 2, 64 * 64
model = fastmix.MarkovRandomField.ising(fastmix.graphs.grid_edges(64, 64, torus=True), coupling=beta)
run = fastmix.sample(model, method="swendsen-wang", num_sweeps=1000, num_draws=100, seed=1)
print("energy", -run.expect(model.log_weight) / (beta * n), "specific heat", run.variance(model.log_weight) / n)
print("|magnetization|", run.expect(lambda x: abs(2 * x.mean(axis=-1) - 1)))
print(fastmix.infer(model, method="annealed", num_chains=32, num_steps=400, sweeps_per_step=1, seed=1).summary())
plt.imshow(run.draws[0, -1].reshape(64, 64), cmap="gray")
