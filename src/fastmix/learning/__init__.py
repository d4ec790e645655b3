"""Learning models from data: likelihood, pseudo-likelihood, trees, and the log-likelihood of data under a model."""

from fastmix.learning.data import Dataset, read_data
from fastmix.learning.files import read_table
from fastmix.learning.learn import learn, stability
from fastmix.learning.result import LearnResult, NormBall, WidthBall
from fastmix.learning.score import ScoreResult, score
from fastmix.learning.structure import chow_liu, edge_gains

__all__ = [
    "Dataset", "LearnResult", "NormBall", "ScoreResult", "WidthBall", "chow_liu", "edge_gains", "learn", "read_data",
    "read_table", "score", "stability",
]  # fmt: skip
