"""Poolings: a feature map to one vector, an expectation under where it looks."""

from foveate.pooling.base import Pool, PoolGaze, PoolLook
from foveate.pooling.continuous import ContinuousGaze, ContinuousPool
from foveate.pooling.discrete import DiscreteGaze, DiscretePool, tvmax

__all__ = ["ContinuousGaze", "ContinuousPool", "DiscreteGaze", "DiscretePool", "Pool", "PoolGaze", "PoolLook", "tvmax"]
