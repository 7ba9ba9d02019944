"""Artifacts: build, export, load, inspect."""

from farcall.abi.loading import inspect, load_module
from farcall.abi.manifest import Manifest
from farcall.artifact.artifact import Artifact
from farcall.artifact.plan import Plan, partition

__all__ = ["Artifact", "Manifest", "Plan", "inspect", "load_module", "partition"]
