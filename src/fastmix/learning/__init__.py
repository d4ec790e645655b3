"""Learning models from data: likelihood, pseudo-likelihood, trees, and the log-likelihood of data under a model."""

from fastmix.learning.chow_liu import chow_liu
from fastmix.learning.data import read_data
from fastmix.learning.dataset import Dataset
from fastmix.learning.edge_gains import edge_gains
from fastmix.learning.files import read_table
from fastmix.learning.learn import learn
from fastmix.learning.mixture import Mixture
from fastmix.learning.moment_check import MomentComparison, compare_moments
from fastmix.learning.objective import LEARNING_OBJECTIVES, LearningObjective, Loss, Validation, register_objective
from fastmix.learning.result import LearnResult, NormBall, WidthBall
from fastmix.learning.score import ScoreResult, score
from fastmix.learning.sequences import (
    contact_scores,
    mutant_energies,
    rank_contacts,
    read_fasta,
    sequence_weights,
)
from fastmix.learning.stability import stability

__all__ = [
    "LEARNING_OBJECTIVES", "Dataset", "LearnResult", "LearningObjective", "Loss", "Mixture", "MomentComparison",
    "NormBall", "ScoreResult", "Validation", "WidthBall", "chow_liu", "compare_moments", "contact_scores",
    "edge_gains", "learn", "mutant_energies", "rank_contacts", "read_data", "read_fasta", "read_table",
    "register_objective", "score", "sequence_weights", "stability",
]  # fmt: skip
