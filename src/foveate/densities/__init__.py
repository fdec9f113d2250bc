"""Attention as a density: Gaussians, truncated paraboloids, mixtures, and exact expectations of basis functions."""

from foveate.densities.base import Density, Ellipse, grid_points
from foveate.densities.bases import Basis, GaussianBasis, ParaboloidBasis
from foveate.densities.gaussian import Gaussian
from foveate.densities.mixture import Mixture
from foveate.densities.paraboloid import TruncatedParaboloid
from foveate.densities.weights import weighted_moments

__all__ = [
    "Basis",
    "Density",
    "Ellipse",
    "Gaussian",
    "GaussianBasis",
    "Mixture",
    "ParaboloidBasis",
    "TruncatedParaboloid",
    "grid_points",
    "weighted_moments",
]
