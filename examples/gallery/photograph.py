"""Labeling a photograph.

Five pixels of a photograph are its labels, and neighbors that look alike prefer the same one. `to_array()` has the
probabilities (rows, columns, labels), `labels()` the most probable label of every pixel by itself (middle), and
`most_probable` the labeling that is the most probable as a whole (right), with a proven gap to the best there is.
Pixels whose probabilities are close to a half differ between the two.
"""

import numpy as np
from skimage import data, io

import fastmix

photo = data.chelsea() / 255.0
colors = photo[[20, 130, 170, 240, 60], [420, 260, 205, 60, 30]]
model = fastmix.MarkovRandomField.image(-((photo[:, :, None] - colors) ** 2).sum(axis=-1) / 0.02, 0.5, contrast=photo)
result = fastmix.infer(model, time_limit=10, seed=1)
best = fastmix.most_probable(model, tol=0.1, time_limit=10, seed=1)
print(result.summary(), best, f"mean standard error {result.std_error.mean():.4f}", sep="\n\n")
io.imsave("labels.png", np.uint8(255 * np.hstack([photo, colors[result.labels()], colors[best.labels()]])))
