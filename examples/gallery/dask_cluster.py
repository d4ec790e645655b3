"""A Dask cluster.

`sample`, `temper`, batches of files (`fastmix infer *.uai -o out/ --cluster ADDRESS`) and experiments go to any
`concurrent.futures.Executor`: here the two workers of a local Dask cluster; `cluster("tcp://..")` takes the address of
a running one. The answer has the same bits whatever the number of workers, also when one of them is killed on the way.
[Past one machine](../executors.md) has more.
"""

from distributed import LocalCluster

import fastmix
from fastmix.executors import cluster

if __name__ == "__main__":
    model = fastmix.instances.ising_grid(20, 20, coupling_max=1.0, field_max=0.2, seed=3)
    cores = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cores, cluster(cores.scheduler_address) as executor:
        result = fastmix.temper(model, num_sweeps=1000, seed=1, executor=executor)
    print((result.node_marginals == fastmix.temper(model, num_sweeps=1000, seed=1).node_marginals).all())
    result.plot(kind="ladder")
