"""A Dask cluster.

Experiments run on any `concurrent.futures.Executor`: here two workers of a local Dask cluster; `cluster("tcp://..")`
takes the address of a running one. Rows are the same bits whatever the number of workers, and a run that was killed
goes on where it was.
"""

from distributed import LocalCluster

from fastmix.experiments import cluster, run_experiment

cores = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
with cores, cluster(cores.scheduler_address) as executor:
    result = run_experiment("samples-random", "out", quick=True, trials=1, executor=executor)
print(f"{result.num_run} rows, status {result.status}")
