"""Certificate and projection explained.

R[i, j] bounds how much variable j can move the distribution of variable i (left). Where a norm of R is below 1, Gibbs
sampling provably mixes, in a number of sweeps that the certificate states. This model has none; its projection, the
closest model whose norm is at most 0.95 (right), has one. The [theory](../theory.md) says why.
"""

import matplotlib.pyplot as plt

import fastmix

model = fastmix.instances.ising_grid(5, 5, coupling_max=2.0, seed=0)
projected = fastmix.project(model, norm_bound=0.95)
for title, which, axes in zip(("model", "projected"), (model, projected.model), plt.subplots(1, 2)[1], strict=True):
    print(f"{title}:", fastmix.certify(which, accuracy=0.01).advice)
    axes.imshow(fastmix.dependency_matrix(which).toarray(), vmax=2, cmap="Blues")
    axes.set_title(f"R of the {title}")
