"""The figures and tables of Liu and Domke (2014), one command each, with runs that survive and a page that shows them.

:mod:`~fastmix.experiments.specs` says for every figure or table which instances and methods it takes and how its rows
are drawn. A run: :mod:`~fastmix.experiments.plan` (cases and seeds), :mod:`~fastmix.experiments.trials` (a case run),
:mod:`~fastmix.experiments.journal` (rows on disk), :mod:`fastmix.executors` (processes and clusters),
:mod:`~fastmix.experiments.report` (figures and page).
"""

from __future__ import annotations

from fastmix.executors import cluster
from fastmix.experiments.plan import Experiment, Settings
from fastmix.experiments.report import write_report
from fastmix.experiments.run_experiment import ExperimentResult, Progress, run_experiment
from fastmix.experiments.specs import EXPERIMENTS

__all__ = [
    "EXPERIMENTS", "Experiment", "ExperimentResult", "Progress", "Settings", "cluster", "run_experiment",
    "write_report",
]  # fmt: skip
