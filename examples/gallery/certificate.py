"""Certificate and projection explained.

R[i, j] bounds how much variable j can move the distribution of variable i (left). Where a norm of R is below 1, Gibbs
sampling provably mixes, in a number of sweeps that the certificate states. This model has none; its projection, the
closest model whose norm is at most 0.95 (right), has one. The [theory](../theory.md) says why.
"""

import matplotlib.pyplot as plt

import fastmix

model = fastmix.instances.ising_grid(5, 5, coupling_max=2.0, seed=0)
projection = fastmix.project(model, norm_bound=0.95)
models = {"the model": model, "its projection": projection.model}
for axes, title in zip(plt.subplots(1, 2, layout="constrained")[1], models, strict=True):
    certificate = fastmix.certify(models[title], accuracy=0.01)
    print(f"{title}: norm {certificate.norm_value:.2f}, proven sweeps {certificate.num_sweeps}")
    axes.imshow(fastmix.dependency_matrix(models[title]).toarray(), vmax=2, cmap="Blues")
    axes.set(title=f"R of {title}", xlabel="variable j", ylabel="variable i")
