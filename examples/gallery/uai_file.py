"""A UAI file.

A grid of 36 variables with three states, read from a file of the UAI competitions, with evidence; answers go to a MAR
file, and a bracket proves bounds on log Z. `most_probable` is exact where the junction tree fits.
"""

import fastmix
from fastmix.io import read_model, write_mar

model = read_model("grid.uai")
result = fastmix.infer(model, evidence={0: 2, 35: 0})
write_mar(result.marginals, "grid.MAR")
print(result.summary())
print(fastmix.bracket(model, evidence={0: 2, 35: 0}))
print(fastmix.most_probable(model, evidence={0: 2, 35: 0}))
result.plot()
