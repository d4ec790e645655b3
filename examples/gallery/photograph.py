"""Labelling a photograph.

Five pixels of a photograph are its labels, and neighbors that look alike prefer the same one. `labels()` is the most
probable label of every pixel by itself, `to_array()` has the probabilities (rows, columns, labels). The verdict is
that on the worst of 135,300 pixels; the mean standard error of a probability says more about the picture as a whole.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import fastmix

photo = data.chelsea() / 255.0
colors = photo[[20, 130, 170, 240, 60], [420, 260, 205, 60, 30]]
model = fastmix.MarkovRandomField.image(-((photo[:, :, None] - colors) ** 2).sum(axis=-1) / 0.02, 1.0, contrast=photo)
result = fastmix.infer(model, time_limit=20, seed=1)
print(result.summary(), f"mean standard error of a probability: {result.std_error.mean():.4f}", sep="\n")
plt.imsave("labels.png", np.hstack([photo, colors[result.labels()]]))
