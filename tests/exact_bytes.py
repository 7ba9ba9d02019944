"""Products of bytes that onnxruntime computes exactly on every processor.

On x86-64 without VNNI, onnxruntime adds two products of a uint8 and an int8 in 16 bits, and saturates. It
does not if the weights have seven bits, or, where they are constants, by an option of the session.
"""

from __future__ import annotations

import numpy as np
import onnxruntime


def seven_bits(*shape: int, seed: int = 0) -> np.ndarray:
    """Random weights of int8, no two products of which exceed 16 bits."""
    return np.random.default_rng(seed).integers(-64, 64, shape).astype(np.int8)


def exact_options() -> onnxruntime.SessionOptions:
    """Options of a session that does not saturate products with constant weights."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options
