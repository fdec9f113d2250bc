"""Attention as a density: Gaussians, truncated paraboloids, mixtures, and exact expectations of basis functions."""

from foveate.densities.attention import ContinuousSelfAttention
from foveate.densities.base import Density, Ellipse, grid_points
from foveate.densities.bases import Basis, GaussianBasis, ParaboloidBasis
from foveate.densities.deformed import prediction_map
from foveate.densities.em import Chosen, choose_mixture, fit_mixture, log_likelihood
from foveate.densities.gaussian import Gaussian
from foveate.densities.mixture import Mixture
from foveate.densities.modes import disjoint, fit_disjoint, sparse_weights
from foveate.densities.paraboloid import TruncatedParaboloid
from foveate.densities.weights import weighted_moments

__all__ = [
    "Basis",
    "Chosen",
    "ContinuousSelfAttention",
    "Density",
    "Ellipse",
    "Gaussian",
    "GaussianBasis",
    "Mixture",
    "ParaboloidBasis",
    "TruncatedParaboloid",
    "choose_mixture",
    "disjoint",
    "fit_disjoint",
    "fit_mixture",
    "grid_points",
    "log_likelihood",
    "prediction_map",
    "sparse_weights",
    "weighted_moments",
]
