"""A restricted Boltzmann machine.

Bars and stripes on 4x4 pixels, learnt with 10 hidden units by maximum likelihood; log Z and the moments are exact
here. Given its first row, the machine completes a picture. The others are 24 exact draws from it.
`fastmix.MarkovRandomField.rbm(weights, visible, hidden)` makes a machine from weights of your own.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmix

bits = np.arange(16)[:, None] >> np.arange(4) & 1
data = np.unique(np.vstack([np.repeat(bits, 4, axis=1), np.tile(bits, 4)]), axis=0)
learnt = fastmix.learn(data, hidden=10, ridge=1e-4, seed=0, time_limit=30)
print(learnt.model, fastmix.score(learnt.model, data), f"at best {-np.log(len(data)):.3f}", sep="\n")
print(fastmix.most_probable(learnt.model, evidence={0: 1, 1: 0, 2: 1, 3: 0}).states[:16].reshape(4, 4))
draws = fastmix.draw_exact(learnt.model, num_draws=24, seed=1)[:, :16].reshape(3, 8, 4, 4).swapaxes(1, 2) / 1.0
plt.imshow(np.pad(draws, [(0, 0), (1, 1)] * 2, constant_values=0.4).reshape(18, 48), cmap="gray_r")
