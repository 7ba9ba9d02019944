"""More whole models, for ``bench_zoo``: architectures, batches and sizes that ``bench_models`` lacks.

Each is written as briefly as its shapes allow; the weights are random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from tests.models.architectures import Conformer, Dilated
from tests.models.convolutional import ResNet, UNet, block
from tests.models.sequences import Encoder, Layer, Llama, Scale, VisionTransformer
from torch import nn
from torch.nn import functional

from bench.networks import MINI_LM, RESNET_50, Arrays, Case, exported, mobile_net_2, random, seeded

SMALL_VISION = Scale(384, 6, 12, 512, 224, 16)
TINY_LLAMA = Scale(512, 8, 4, 512)
WHISPER_TINY = Scale(384, 6, 4, 1500)


def vgg() -> nn.Module:
    """VGG-11."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
        inputs = width or inputs
    head = [nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


class Dense(nn.Module):
    """DenseNet's layer: normalizes what all layers before it gave, and adds its own channels to them."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm, self.narrow = nn.BatchNorm2d(inputs), block(inputs, 128, act=nn.ReLU())
        self.wide = nn.Conv2d(128, 32, 3, 1, 1, bias=False)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return torch.cat([x, self.wide(self.narrow(self.norm(x).relu()))], 1)


def dense_net() -> nn.Module:
    """DenseNet-121."""
    layers: list[nn.Module] = [block(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for count in (6, 12, 24, 16):
        if width > 64:
            width //= 2
            half = nn.Conv2d(2 * width, width, 1, bias=False)
            layers += [nn.BatchNorm2d(2 * width), nn.ReLU(), half, nn.AvgPool2d(2)]
        layers += [Dense(width + 32 * number) for number in range(count)]
        width += 32 * count
    tail = [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*layers, *tail)


class Bypass(nn.Module):
    """``x`` plus what ``parts`` make of it, through ``short`` where shapes differ."""

    def __init__(self, *parts: nn.Module, short: nn.Module | None = None, act: nn.Module | None = None):
        super().__init__()
        self.parts, self.short = nn.Sequential(*parts), short or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.act(self.short(x) + self.parts(x))


def res_next() -> nn.Module:
    """ResNeXt-50, 32 groups of 4 channels."""
    layers: list[nn.Module] = [block(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width, outputs = 128 << stage, 256 << stage
        for number in range(count):
            stride = 2 if stage and not number else 1
            parts = [block(inputs, width, act=nn.ReLU()), block(width, width, 3, stride, 32, nn.ReLU())]
            short = None if number else block(inputs, outputs, 1, stride)
            layers.append(Bypass(*parts, block(width, outputs), short=short, act=nn.ReLU()))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Shuffle(nn.Module):
    """ShuffleNetV2's unit: one half passes, or both are halved in size; then the channels are mixed."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, half = stride, outputs // 2
        first = inputs if stride == 2 else half
        depthwise = block(half, half, 3, stride, half)
        self.right = nn.Sequential(
            block(first, half, act=nn.ReLU()), depthwise, block(half, half, act=nn.ReLU())
        )
        self.left = nn.Sequential(block(first, first, 3, 2, first), block(first, half, act=nn.ReLU()))

    def forward(self, x):  # type: ignore[no-untyped-def]
        left, right = (self.left(x), x) if self.stride == 2 else x.chunk(2, 1)
        y = torch.cat([left, self.right(right)], 1)
        batch, width, high, wide = y.shape
        return y.view(batch, 2, width // 2, high, wide).transpose(1, 2).reshape(batch, width, high, wide)


def shuffle_net() -> nn.Module:
    """ShuffleNetV2 1.0x."""
    layers: list[nn.Module] = [block(3, 24, 3, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    inputs = 24
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        for number in range(count):
            layers.append(Shuffle(inputs, outputs, 1 if number else 2))
            inputs = outputs
    tail = [block(464, 1024, act=nn.ReLU()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers, *tail)


class LastNorm(nn.LayerNorm):
    """LayerNorm over the channels of images."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Next(nn.Module):
    """ConvNeXt's block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):  # type: ignore[no-untyped-def]
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def conv_next() -> nn.Module:
    """ConvNeXt-T."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), LastNorm(96)]
    for stage, count in enumerate((3, 3, 9, 3)):
        width = 96 << stage
        if stage:
            layers += [LastNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [Next(width) for _ in range(count)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000)
    )


class Window(nn.Module):
    """Swin's block: attention in windows of 7x7, shifted by 3 in every other one."""

    def __init__(self, width: int, side: int, shift: int) -> None:
        super().__init__()
        self.side, self.shift, self.heads = side, shift if side > 7 else 0, width // 32
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(self.heads, 49, 49) * 0.1)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x):  # type: ignore[no-untyped-def]
        count, length, width = x.shape
        parts = self.project(x).view(count, length, 3, self.heads, 32).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts.unbind(0), attn_mask=self.bias)
        return self.out(y.transpose(1, 2).reshape(count, length, width))

    def forward(self, x):  # type: ignore[no-untyped-def]
        batch, side, width, windows = x.shape[0], self.side, x.shape[3], self.side // 7
        y = self.first(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(batch, windows, 7, windows, 7, width).transpose(2, 3).reshape(-1, 49, width)
        y = self.attend(y).view(batch, windows, windows, 7, 7, width).transpose(2, 3)
        y = y.reshape(batch, side, side, width)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.feed(self.second(x))


class Merge(nn.Module):
    """Four neighbours become one, of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):  # type: ignore[no-untyped-def]
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.out(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    """Swin-T."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, layers = nn.Conv2d(3, 96, 4, 4), list[nn.Module]()
        for stage, count in enumerate((2, 2, 6, 2)):
            width, side = 96 << stage, 56 >> stage
            layers += [Merge(width // 2)] if stage else []
            layers += [Window(width, side, 3 * (number % 2)) for number in range(count)]
        self.layers, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.head(self.norm(self.layers(self.patches(x).permute(0, 2, 3, 1))).mean((1, 2)))


class Mixing(nn.Module):
    """MLP-Mixer's layer: between places, then between channels."""

    def __init__(self, width: int, places: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(places, 256), nn.GELU(), nn.Linear(256, places))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):  # type: ignore[no-untyped-def]
        x = x + self.places(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


class Mixer(nn.Module):
    """MLP-Mixer S/16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.head = (
            nn.Conv2d(3, 512, 16, 16),
            nn.LayerNorm(512),
            nn.Linear(512, 1000),
        )
        self.layers = nn.Sequential(*[Mixing(512, 196) for _ in range(8)])

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.head(self.norm(self.layers(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


class Cross(nn.Module):
    """A cross-stage part of a detector: some channels pass, others go through residual blocks."""

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__()
        half, act = outputs // 2, nn.SiLU()
        self.first, self.last = block(inputs, outputs, act=act), block(half * (2 + count), outputs, act=act)
        self.parts = nn.ModuleList(
            Bypass(block(half, half, 3, act=act), block(half, half, 3, act=act)) for _ in range(count)
        )

    def forward(self, x):  # type: ignore[no-untyped-def]
        found = list(self.first(x).chunk(2, 1))
        for part in self.parts:
            found.append(part(found[-1]))
        return self.last(torch.cat(found, 1))


class Yolo(nn.Module):
    """A detector as YOLOv8n: three maps, a pyramid up and down, boxes and classes for each place."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.SiLU()

        def down(inputs: int, outputs: int) -> nn.Module:
            return block(inputs, outputs, 3, 2, act=act)

        self.stem = nn.Sequential(down(3, 16), down(16, 32), Cross(32, 32, 1), down(32, 64), Cross(64, 64, 2))
        self.middle = nn.Sequential(down(64, 128), Cross(128, 128, 2))
        self.deep = nn.Sequential(down(128, 256), Cross(256, 256, 1), block(256, 128, act=act))
        self.spread, self.pool = block(512, 256, act=act), nn.MaxPool2d(5, 1, 2)
        self.up_1, self.up_2 = Cross(384, 128, 1), Cross(192, 64, 1)
        self.down_1, self.down_2 = down(64, 64), down(128, 128)
        self.low_1, self.low_2 = Cross(192, 128, 1), Cross(384, 256, 1)
        self.heads = nn.ModuleList(
            nn.Sequential(block(width, 80, 3, act=act), block(80, 80, 3, act=act), nn.Conv2d(80, 144, 1))
            for width in (64, 128, 256)
        )

    def forward(self, x):  # type: ignore[no-untyped-def]
        high = self.stem(x)
        middle = self.middle(high)
        pools = [self.deep(middle)]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        low = self.spread(torch.cat(pools, 1))
        y = self.up_1(torch.cat([functional.interpolate(low, scale_factor=2.0), middle], 1))
        top = self.up_2(torch.cat([functional.interpolate(y, scale_factor=2.0), high], 1))
        y = self.low_1(torch.cat([self.down_1(top), y], 1))
        low = self.low_2(torch.cat([self.down_2(y), low], 1))
        maps = [head(part).flatten(2) for head, part in zip(self.heads, (top, y, low), strict=True)]
        boxes, kinds = torch.cat(maps, 2).split((64, 80), 1)
        sides = boxes.unflatten(1, (4, 16)).softmax(2).mul(torch.arange(16.0)[:, None]).sum(2)
        return torch.cat([sides, kinds.sigmoid()], 1)


class Pyramid(nn.Module):
    """DeepLab's head: dilated convolutions of one map beside each other."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([block(inputs, width, act=nn.ReLU())])
        for step in (6, 12, 18):
            conv = nn.Conv2d(inputs, width, 3, padding=step, dilation=step, bias=False)
            self.parts.append(nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU()))
        self.last, self.head = block(4 * width, width, act=nn.ReLU()), nn.Conv2d(width, 21, 1)

    def forward(self, x):  # type: ignore[no-untyped-def]
        y = self.head(self.last(torch.cat([part(x) for part in self.parts], 1)))
        return functional.interpolate(y, scale_factor=8.0, mode="bilinear")


def super_resolution() -> nn.Module:
    """ESPCN, three times the size."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, 1, 2), nn.Tanh(), nn.Conv2d(64, 32, 3, 1, 1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3),
    )  # fmt: skip


def generator() -> nn.Module:
    """DCGAN: from 100 numbers to an image of 64x64."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((100, 512), (512, 256), (256, 128), (128, 64)):
        stride, pad = (2, 1) if layers else (1, 0)
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride, pad, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


def _volume(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm3d(outputs))


def video_net() -> nn.Module:
    """R3D-18."""
    first = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm3d(64), nn.ReLU()]
    inputs = 64
    for outputs in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if inputs == outputs else 2
        short = None if stride == 1 else nn.Conv3d(inputs, outputs, 1, 2, bias=False)
        parts = [_volume(inputs, outputs, stride), nn.ReLU(), _volume(outputs, outputs)]
        layers.append(Bypass(*parts, short=short, act=nn.ReLU()))
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))


def mobile_net_1() -> nn.Module:
    """MobileNetV1, a quarter of its width: MLPerf Tiny's visual wake words."""
    layers: list[nn.Module] = [block(3, 8, 3, 2, act=nn.ReLU())]
    inputs = 8
    for outputs, stride in (
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ):
        layers += [block(inputs, inputs, 3, stride, inputs, nn.ReLU()), block(inputs, outputs, act=nn.ReLU())]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 2), nn.Softmax(1))


def keywords() -> nn.Module:
    """DS-CNN: MLPerf Tiny's spotting of keywords in 49 frames of 10 coefficients."""
    layers = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.ReLU()]
    for _ in range(4):
        layers += [block(64, 64, 3, 1, 64, nn.ReLU()), block(64, 64, act=nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(1))


def tiny_resnet() -> nn.Module:
    """ResNet-8: MLPerf Tiny's images of 32x32."""
    layers: list[nn.Module] = [block(3, 16, 3, act=nn.ReLU())]
    inputs = 16
    for outputs in (16, 32, 64):
        stride = 1 if inputs == outputs else 2
        parts = [block(inputs, outputs, 3, stride, act=nn.ReLU()), block(outputs, outputs, 3)]
        short = None if stride == 1 else nn.Conv2d(inputs, outputs, 1, 2)
        layers.append(Bypass(*parts, short=short, act=nn.ReLU()))
        inputs = outputs
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))


def autoencoder() -> nn.Module:
    """MLPerf Tiny's detector of anomalies."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((640, 128), *[(128, 128)] * 3, (128, 8), (8, 128), *[(128, 128)] * 3):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640))


class Whisper(nn.Module):
    """Whisper-tiny's encoder: 80 mel bands of 30 seconds."""

    def __init__(self) -> None:
        super().__init__()
        width = WHISPER_TINY.width
        self.first, self.second = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(1500, width))
        self.layers = nn.ModuleList(Layer(WHISPER_TINY, before=True) for _ in range(WHISPER_TINY.layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):  # type: ignore[no-untyped-def]
        x = functional.gelu(self.second(functional.gelu(self.first(x)))).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)[0]
        return self.norm(x)


class Separator(nn.Module):
    """As Conv-TasNet: a mask for each speaker, from dilated depthwise convolutions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 512, 16, 8, bias=False), nn.ConvTranspose1d(512, 1, 16, 8)
        self.narrow, self.masks = nn.Conv1d(512, 128, 1), nn.Conv1d(128, 1024, 1)
        self.parts = nn.Sequential(*[
            Bypass(
                nn.Conv1d(128, 512, 1), nn.PReLU(), nn.GroupNorm(1, 512),
                nn.Conv1d(512, 512, 3, 1, 2**step, 2**step, 512), nn.PReLU(), nn.GroupNorm(1, 512),
                nn.Conv1d(512, 128, 1),
            )
            for step in range(8)
        ])  # fmt: skip

    def forward(self, x):  # type: ignore[no-untyped-def]
        y = self.encode(x).relu()
        masks = self.masks(self.parts(self.narrow(y))).sigmoid().unflatten(1, (2, 512))
        return self.decode((y[:, None] * masks).flatten(0, 1))


class Llamas(nn.Module):
    """Layers of a decoder that reads a prompt."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Llama(TINY_LLAMA) for _ in range(count))

    def forward(self, x, places):  # type: ignore[no-untyped-def]
        for layer in self.layers:
            x = layer(x, places)
        return x


class Rows(nn.Module):
    """A recurrent layer of rows, and its last state."""

    def __init__(self, kind: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.layers, self.head = kind(width, width, num_layers=2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.head(self.layers(x)[0][:, -1])


class Ranking(nn.Module):
    """As DLRM: rows of tables and numbers, their products with each other, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 64) for _ in range(26))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()
        )
        self.top = nn.Sequential(
            nn.Linear(64 + 729, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, x, ids):  # type: ignore[no-untyped-def]
        y = self.bottom(x)
        rows = torch.stack([y, *[table(ids[:, i]) for i, table in enumerate(self.tables)]], 1)
        return self.top(torch.cat([y, (rows @ rows.transpose(1, 2)).flatten(1)], 1)).sigmoid()


def _case(make: Callable[[], nn.Module], inputs: Callable[[], Arrays]) -> Case:
    """A model whose sizes are those of its inputs."""
    return Case(exported(make, inputs, ({},) * len(inputs())), {"": inputs}, {"": 1.0}, seeded(make))


def _fixed(make: Callable[[], nn.Module], *shape: int) -> Case:
    return _case(make, lambda: [random(*shape)])


def _batches(make: Callable[[], nn.Module], counts: Sequence[int], *shape: int) -> Case:
    """A model that learns from a call how many items there are."""
    return _counted(make, counts, lambda n: [random(n, *shape)])


def _counted(make: Callable[[], nn.Module], counts: Sequence[int], inputs: Callable[[int], Arrays]) -> Case:
    sizes = {f"batch {n}": partial(inputs, n) for n in counts}
    model = exported(make, partial(inputs, 2), ({0: "batch"},) * len(inputs(2)))
    return Case(model, sizes, dict.fromkeys(sizes, 1.0), seeded(make))


def _resnet_18() -> nn.Module:
    return ResNet(64, (2, 2, 2, 2), False)


def _bert(batch: int) -> Arrays:
    ids = np.random.default_rng(batch).integers(0, 50, (batch, 64))
    return [ids, np.ones_like(ids), np.zeros_like(ids)]


def _visits(batch: int) -> Arrays:
    return [random(batch, 13), np.random.default_rng(batch).integers(0, 1000, (batch, 26))]


_IMAGE = 1, 3, 224, 224
ZOO: dict[str, Case] = {
    "VGG-11": _fixed(vgg, *_IMAGE),
    "DenseNet-121": _fixed(dense_net, *_IMAGE),
    "ResNeXt-50": _fixed(res_next, *_IMAGE),
    "ShuffleNetV2": _fixed(shuffle_net, *_IMAGE),
    "ConvNeXt-T": _fixed(conv_next, *_IMAGE),
    "ViT-S": _fixed(lambda: VisionTransformer(SMALL_VISION), *_IMAGE),
    "Swin-T": _fixed(Swin, *_IMAGE),
    "Mixer-S": _fixed(Mixer, *_IMAGE),
    "YOLOv8n 320": _fixed(Yolo, 1, 3, 320, 320),
    "DeepLab head 28": _fixed(lambda: Pyramid(512, 128), 1, 512, 28, 28),
    "ESPCN 120x160": _fixed(super_resolution, 1, 1, 120, 160),
    "DCGAN": _fixed(generator, 1, 100, 1, 1),
    "R3D-18 8x56": _fixed(video_net, 1, 3, 8, 56, 56),
    "ResNet-18 of 112": _batches(_resnet_18, (1, 8), 3, 112, 112),
    "ResNet-50 of 112": _batches(RESNET_50, (1, 8), 3, 112, 112),
    "MobileNetV2 of 96": _batches(mobile_net_2, (1, 4), 3, 96, 96),
    "MobileNetV2 8x224": _fixed(mobile_net_2, 8, 3, 224, 224),
    "visual wake words": _fixed(mobile_net_1, 1, 3, 96, 96),
    "keyword spotting": _fixed(keywords, 1, 1, 49, 10),
    "ResNet-8 of 32": _fixed(tiny_resnet, 1, 3, 32, 32),
    "autoencoder": _batches(autoencoder, (1, 32), 640),
    "BERT of 384": _counted(lambda: Encoder(MINI_LM), (1, 8), _bert),
    "Llama prompt": _case(lambda: Llamas(4), lambda: [random(1, 64, 512), np.arange(64)[None]]),
    "diffusion U-Net": _case(lambda: UNet(64), lambda: [random(1, 3, 64, 64), np.array([500])]),
    "Whisper-tiny encoder": _fixed(Whisper, 1, 80, 3000),
    "Conv-TasNet": _fixed(Separator, 1, 1, 16000),
    "WaveNet": _fixed(lambda: Dilated(64), 1, 2000, 4),
    "Conformer": _fixed(lambda: nn.Sequential(*[Conformer(256) for _ in range(4)]), 1, 200, 256),
    "LSTM": _batches(lambda: Rows(nn.LSTM, 256), (1, 16), 64, 256),
    "GRU": _batches(lambda: Rows(nn.GRU, 256), (1, 16), 64, 256),
    "DLRM": _counted(Ranking, (1, 128), _visits),
}  # fmt: skip
