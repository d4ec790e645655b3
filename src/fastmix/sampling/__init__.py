"""Sampling from models: Gibbs sweeps, error bars, diagnostics."""
