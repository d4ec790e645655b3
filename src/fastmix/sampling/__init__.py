"""Sampling from models: Gibbs sweeps, cluster moves, error bars, diagnostics."""

from __future__ import annotations

from fastmix.sampling.perfect import PerfectSamples, perfect_sample
from fastmix.sampling.sampler import SampleResult, sample

__all__ = ["PerfectSamples", "SampleResult", "perfect_sample", "sample"]
