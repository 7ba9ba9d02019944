"""Models of PyTorch: ``torch.compile(model, backend="farcall")``, and :func:`export` for artifacts.

This room needs torch, and what the extra ``farcall[torch]`` installs. ``import farcall``
does not import torch.
"""

from farcall._extras import require, require_compile

require_compile()
require("torch", "torch's ONNX exporter", "onnxscript")

from farcall.torch._backend import backend
from farcall.torch._export import export, load_program

__all__ = ["backend", "export", "load_program"]
__dir__ = __all__.copy
