"""Networks for images: classifiers, a U-Net, and a detector's head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def block(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act=None):
    """Convolution, batch normalization, and an activation if there is one."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs)
    with torch.no_grad():  # statistics as of a trained network, so that folding them is no identity
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
    return nn.Sequential(conv, norm, *([act] if act else []))


class Residual(nn.Module):
    """Two convolutions (ResNet-18), or three with a narrow middle (ResNet-50)."""

    def __init__(self, inputs: int, width: int, stride: int, narrow: bool) -> None:
        super().__init__()
        outputs = width * 4 if narrow else width
        if narrow:
            parts = [block(inputs, width, act=nn.ReLU()), block(width, width, 3, stride, act=nn.ReLU())]
            parts.append(block(width, outputs))
        else:
            parts = [block(inputs, width, 3, stride, act=nn.ReLU()), block(width, width, 3)]
        self.parts = nn.Sequential(*parts)
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else block(inputs, outputs, 1, stride)

    def forward(self, x):
        return functional.relu(self.parts(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...], narrow: bool) -> None:
        super().__init__()
        layers, inputs = [block(3, width, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)], width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                layers.append(Residual(inputs, width << stage, 2 if stage and not number else 1, narrow))
                inputs = (width << stage) * (4 if narrow else 1)
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, 10)

    def forward(self, x):
        return self.head(functional.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


class Excite(nn.Module):
    """Squeeze and excitation: channels are scaled by what their means say."""

    def __init__(self, width: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        middle = max(width // 4, 4)
        self.parts = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, middle, 1), act, nn.Conv2d(middle, width, 1), gate
        )

    def forward(self, x):
        return x * self.parts(x)


class Inverted(nn.Module):
    """An inverted residual: widen, depthwise convolution, excite, narrow."""

    def __init__(self, inputs, middle, outputs, kernel, stride, act, gate) -> None:
        super().__init__()
        parts = [block(inputs, middle, act=act)] if middle != inputs else []
        parts.append(block(middle, middle, kernel, stride, groups=middle, act=act))
        if gate is not None:
            parts.append(Excite(middle, nn.ReLU() if isinstance(gate, nn.Hardsigmoid) else act, gate))
        self.parts = nn.Sequential(*parts, block(middle, outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.parts(x) if self.same else self.parts(x)


def _classifier(first: int, layers: list[nn.Module], inputs: int, last: int, act: nn.Module) -> nn.Module:
    return nn.Sequential(
        block(3, first, 3, 2, act=act), *layers, block(inputs, last, act=act),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10),
    )  # fmt: skip


# Kernel, widened to, outputs, excites, hard swish, stride: the large network.
_MOBILE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1), (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


def mobile_net(small: bool) -> nn.Module:
    """MobileNetV3."""
    share = 4 if small else 1
    layers, inputs = [], 16 // share
    for kernel, middle, outputs, excites, hard, stride in _MOBILE[::4] if small else _MOBILE:
        act = nn.Hardswish() if hard else nn.ReLU()
        gate = nn.Hardsigmoid() if excites else None
        layers.append(Inverted(inputs, middle // share, outputs // share, kernel, stride, act, gate))
        inputs = outputs // share
    return _classifier(16 // share, layers, inputs, 960 // share, nn.Hardswish())


# Widened by, kernel, stride, outputs, layers.
_EFFICIENT = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip


def efficient_net(small: bool) -> nn.Module:
    """EfficientNet-B0."""
    share = 4 if small else 1
    layers, inputs = [], 32 // share
    for wide, kernel, stride, outputs, count in _EFFICIENT[:3] if small else _EFFICIENT:
        for number in range(count):
            layers.append(
                Inverted(
                    inputs, inputs * wide, outputs // share, kernel, 1 if number else stride,
                    nn.SiLU(), nn.Sigmoid(),
                )
            )  # fmt: skip
            inputs = outputs // share
    return _classifier(32 // share, layers, inputs, 1280 // share, nn.SiLU())


class Step(nn.Module):
    """A residual step of a U-Net, which the time shifts."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.one, self.two = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.time, self.short = nn.Linear(time, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.one(functional.silu(self.first(x))) + self.time(time)[:, :, None, None]
        return self.short(x) + self.two(functional.silu(self.second(y)))


class Look(nn.Module):
    """Self-attention between the places of an image."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, width)
        self.project, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, high, wide = x.shape
        parts = self.project(self.norm(x)).view(batch, 3, self.heads, width // self.heads, high * wide)
        queries, keys, values = parts.transpose(3, 4).unbind(1)
        y = functional.scaled_dot_product_attention(queries, keys, values)
        return x + self.out(y.transpose(2, 3).reshape(batch, width, high, wide))


class UNet(nn.Module):
    """As in diffusion: group normalization, attention in the middle, resized and transposed ways up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        time = 4 * width
        self.register_buffer("speed", torch.exp(-torch.arange(width // 2) / (width // 2) * 9.2))
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.one, self.two = Step(width, width, time), Step(width, 2 * width, time)
        self.down, self.deep = nn.Conv2d(width, width, 3, 2, 1), nn.AvgPool2d(2)
        self.look, self.middle = Look(2 * width, 4), Step(2 * width, 2 * width, time)
        self.up = nn.ConvTranspose2d(2 * width, 2 * width, 2, 2)
        self.three, self.four = Step(4 * width, width, time), Step(2 * width, width, time)
        self.norm, self.last = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x, when):
        angle = when[:, None].float() * self.speed
        time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = high = self.one(self.first(x), time)
        x = wide = self.two(self.down(x), time)
        x = self.middle(self.look(self.deep(x)), time)
        x = self.three(torch.cat([self.up(x), wide], 1), time)
        x = self.four(torch.cat([functional.interpolate(x, scale_factor=2.0), high], 1), time)
        return self.last(functional.silu(self.norm(x)))


class Detector(nn.Module):
    """A head on two maps of features: the best ``keep`` boxes, and what of them does not overlap."""

    def __init__(self, width: int, kinds: int, keep: int) -> None:
        super().__init__()
        self.kinds, self.keep = kinds, keep
        self.body = nn.ModuleList(
            nn.Sequential(block(3 if not i else width, width, 3, 4, act=nn.SiLU())) for i in range(2)
        )
        self.boxes = nn.ModuleList(nn.Conv2d(width, 4, 3, 1, 1) for _ in range(2))
        self.scores = nn.ModuleList(nn.Conv2d(width, kinds, 3, 1, 1) for _ in range(2))

    def forward(self, x):
        boxes, scores = [], []
        for body, box, score in zip(self.body, self.boxes, self.scores, strict=True):
            x = body(x)
            high, wide = x.shape[2:]
            rows = torch.arange(high, dtype=torch.float32)[:, None].expand(high, wide) + 0.5
            columns = torch.arange(wide, dtype=torch.float32)[None, :].expand(high, wide) + 0.5
            middle = torch.stack([columns, rows], -1).reshape(1, -1, 2)
            sides = functional.softplus(box(x)).flatten(2).transpose(1, 2)
            boxes.append(torch.cat([middle - sides[..., :2], middle + sides[..., 2:]], -1))
            scores.append(score(x).flatten(2).transpose(1, 2).sigmoid())
        every, chances = torch.cat(boxes, 1)[0], torch.cat(scores, 1)[0]
        best, kind = chances.max(1)
        best, place = best.topk(self.keep)
        found, kind = every[place], kind[place]
        kept = suppress(found, best, kind)
        return found[kept], best[kept], kind[kept]


def suppress(boxes: torch.Tensor, scores: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
    """Places of the boxes that overlap no better one of their kind: ONNX's NonMaxSuppression."""
    apart = boxes + kinds[:, None].to(boxes.dtype) * 1000.0
    return Suppress.apply(apart[None], scores[None, None])


class Suppress(torch.autograd.Function):
    """NonMaxSuppression, which torch has not; torch's older exporter writes what ``symbolic`` says."""

    @staticmethod
    def forward(_, boxes, scores):
        return torch.arange(boxes.shape[1])  # its values are not read, while a model is exported

    @staticmethod
    def symbolic(g, boxes, scores):
        most, overlap = g.op("Constant", value_t=torch.tensor([50])), torch.tensor([0.5])
        chosen = g.op(
            "NonMaxSuppression", boxes, scores, most, g.op("Constant", value_t=overlap),
            g.op("Constant", value_t=torch.tensor([0.3])),
        )  # fmt: skip
        column = g.op("Constant", value_t=torch.tensor(2))
        return g.op("Gather", chosen, column, axis_i=1)
