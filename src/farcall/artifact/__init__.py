"""Artifacts: build, export, load, inspect."""

from farcall.artifact._artifact import Artifact
from farcall.artifact._plan import Plan, partition
from farcall.library._loading import inspect, load_module
from farcall.library._manifest import Manifest

__all__ = ["Artifact", "Manifest", "Plan", "inspect", "load_module", "partition"]
