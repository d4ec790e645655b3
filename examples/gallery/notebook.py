"""Working in a notebook.

Results show themselves: a table as the last line of a cell, `plot()` for a picture, `to_frame()` for pandas or
polars, `summary()` for text.
"""

import fastmix

model = fastmix.instances.ising_grid(5, 6, coupling_max=1.0, field_max=1.0, seed=3)
result = fastmix.sample(model, num_chains=32, num_sweeps=2000, seed=1)
print(result.summary())
print(result.to_frame().nlargest(3, "std_error"))
result.plot()
result  # noqa: B018
