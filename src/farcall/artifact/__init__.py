"""Artifacts: build, export, load, inspect."""

from farcall.artifact._artifact import Artifact
from farcall.artifact._plan import Plan, partition
from farcall.artifact._region_forecast import RegionForecast
from farcall.library import Manifest, inspect, load_module

__all__ = ["Artifact", "Manifest", "Plan", "RegionForecast", "inspect", "load_module", "partition"]
__dir__ = __all__.copy
