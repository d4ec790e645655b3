"""A network of pyAgrum.

`fastmix.convert` takes models of pgmpy, pyAgrum, dimod and networkx as they are and keeps the names of variables and
states; `to="pyagrum"` goes the other way.
"""

import pyagrum as gum

import fastmix

gum.initRandom(1)  # fastBN fills its tables at random
arcs = "smokes{no|yes}->cancer{no|yes}->xray{clear|shadow}<-tuberculosis{no|yes}->cough{no|yes}<-cancer"
network = gum.fastBN(arcs)
model = fastmix.convert(network)
result = fastmix.infer(model, evidence={"xray": "shadow", "cough": "yes"})
print(result.to_frame())
print(fastmix.most_probable(model, evidence={"xray": "shadow"}))
result.plot()
