"""The mechanisms: additive noise for measures, and draws of statistics. `registry` lists them by name."""

from __future__ import annotations

from dpsql.mechanisms.additive import Noise
from dpsql.mechanisms.gaussian import GaussianNoise
from dpsql.mechanisms.k_norm import KNormNoise
from dpsql.mechanisms.laplace import LaplaceNoise

__all__ = ["GaussianNoise", "KNormNoise", "LaplaceNoise", "Noise"]
