"""Networks of other architectures, each with operators or shapes that the others lack."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .sequences import WORDS


class Nested(nn.Module):
    """As U-Net++: pooled in ceil mode, so that parts are resized to the sizes of others."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def step(inputs: int, outputs: int) -> nn.Module:
            norm = nn.InstanceNorm2d(outputs, affine=True)
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1), norm, nn.LeakyReLU(0.1))

        self.top, self.middle, self.deep = step(3, width), step(width, 2 * width), step(2 * width, 4 * width)
        self.join, self.lower = step(3 * width, width), step(6 * width, 2 * width)
        self.last, self.head = step(4 * width, width), nn.Conv2d(width, 2, 1)

    def forward(self, x):
        def up(part, like):
            return functional.interpolate(part, like.shape[2:], mode="bilinear", align_corners=True)

        top = self.top(x)
        middle = self.middle(functional.max_pool2d(top, 2, ceil_mode=True))
        deep = self.deep(functional.max_pool2d(middle, 2, ceil_mode=True))
        join = self.join(torch.cat([top, up(middle, top)], 1))
        lower = self.lower(torch.cat([middle, up(deep, middle)], 1))
        return self.head(self.last(torch.cat([top, join, up(lower, top)], 1)))


class Neighbours(nn.Module):
    """Attention along the edges of a graph: gathers and scatters, by maximum and by sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.score, self.head = (
            nn.Linear(4, width),
            nn.Linear(2 * width, 1),
            nn.Linear(width, 3),
        )

    def forward(self, x, edges):
        source, target = edges[0], edges[1]
        y, count = self.project(x), x.shape[0]
        scores = functional.leaky_relu(self.score(torch.cat([y[source], y[target]], 1)), 0.2)[:, 0]
        most = torch.full((count,), -1e9).scatter_reduce(0, target, scores, "amax")
        shares = torch.exp(scores - most[target])
        total = torch.zeros(count).scatter_add(0, target, shares)
        return self.head(
            torch.zeros_like(y).index_add(0, target, y[source] * (shares / total[target])[:, None])
        )


class Experts(nn.Module):
    """A mixture: each row is computed by the two of four experts that a gate chooses."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.wide = nn.Parameter(torch.randn(4, width, 2 * width) * width**-0.5)
        self.narrow = nn.Parameter(torch.randn(4, 2 * width, width) * width**-0.5)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = functional.gelu(torch.einsum("bld,blkde->blke", x, self.wide[chosen]), approximate="tanh")
        return (torch.einsum("blke,blked->blkd", y, self.narrow[chosen]) * weights[..., None]).sum(2)


class Beam(nn.Module):
    """A step of a beam search, which reorders the cache of keys and values."""

    def forward(self, logits, scores, cache):
        batch, beams, words = logits.shape
        all_scores = (logits.log_softmax(-1) + scores[..., None]).reshape(batch, beams * words)
        best, found = all_scores.topk(beams)
        origin = found // words
        index = origin[:, :, None, None, None].expand(-1, -1, *cache.shape[2:])
        return best, origin, found % words, torch.gather(cache, 1, index)


class Conformer(nn.Module):
    """A block for speech: attention, a gated depthwise convolution, and halves of two feed-forward parts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.gate, self.out = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise, self.norm = nn.Conv1d(width, width, 5, 1, 2, groups=width), nn.BatchNorm1d(width)

    def forward(self, x):
        x = x + self.feeds[0](self.norms[0](x)) / 2
        y = self.norms[1](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = functional.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.out(functional.silu(self.norm(self.depthwise(y)))).transpose(1, 2)
        return self.norms[4](x + self.feeds[1](self.norms[3](x)) / 2)


class Upscaler(nn.Module):
    """Super-resolution: reflected and repeated borders, shuffled pixels, and a bicubic image to add to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1, padding_mode="reflect")
        self.second, self.act = nn.Conv2d(width, 12, 3, padding=1, padding_mode="replicate"), nn.PReLU(width)

    def forward(self, x):
        y = functional.pixel_shuffle(self.second(self.act(self.first(x))), 2)
        y = y + functional.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return y, functional.pixel_unshuffle(y, 2)


class Conditioned(nn.Module):
    """A step of diffusion that words direct: cross attention, and a gated feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Conv2d(4, width, 3, 1, 1),
            nn.GroupNorm(4, width),
            nn.Conv2d(width, 4, 1),
        )
        self.queries, self.both = nn.Linear(width, width), nn.Linear(12, 2 * width)
        self.gate, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x, words):
        x = self.first(x)
        batch, width, high, wide = x.shape

        def heads(part):
            return part.view(batch, -1, 4, width // 4).transpose(1, 2)

        y = self.norm(x).flatten(2).transpose(1, 2)
        parts = [heads(part) for part in (self.queries(y), *self.both(words).chunk(2, -1))]
        y = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, high * wide, width)
        gate, y = self.gate(y).chunk(2, -1)
        y = self.out(y * functional.gelu(gate)).transpose(1, 2).reshape(batch, width, high, wide)
        return self.last(x + y)


class Relative(nn.Module):
    """Attention whose bias depends on the distance, in buckets as T5 has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.bias = nn.Linear(width, 3 * width), nn.Embedding(8, 4)

    def forward(self, x):
        batch, length, width = x.shape
        queries, keys, values = self.project(x).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        places = torch.arange(length)
        far = (places[:, None] - places).abs()
        wide = 4 + (torch.log(far.float().clamp(min=1) / 4) / 0.69 * 2).long()
        bias = self.bias(torch.where(far < 4, far, wide.clamp(0, 7))).permute(2, 0, 1)
        later = torch.ones(length, length).triu(1).bool()
        scores = (queries @ keys.transpose(-1, -2) + bias).masked_fill(later, float("-inf"))
        return (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, width)


class Generates(nn.Module):
    """A script that writes as many words as it is told, each from the one before: a Loop with a list."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.cell, self.head = (
            nn.Embedding(WORDS, width),
            nn.Linear(2 * width, width),
            nn.Linear(width, WORDS),
        )

    def forward(self, state, count):
        word, found = torch.zeros(state.shape[0], dtype=torch.long), []
        for _ in range(int(count) + 3):
            state = torch.tanh(self.cell(torch.cat([self.words(word), state], 1)))
            word = self.head(state).argmax(-1)
            found.append(word)
        return torch.stack(found, 1), state


class Dilated(nn.Module):
    """As WaveNet: gated causal convolutions, each with twice the reach of the one before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(4, width, 1), nn.Conv1d(width, 4, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**step) for step in range(4))
        self.outs = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))

    def forward(self, x):
        x = self.first(x.transpose(1, 2))
        total = torch.zeros_like(x)
        for step, (gate, out) in enumerate(zip(self.gates, self.outs, strict=True)):
            left, right = gate(functional.pad(x, (2**step, 0))).chunk(2, 1)
            y = out(torch.tanh(left) * torch.sigmoid(right))
            total, x = total + y, x + y
        return self.last(functional.relu(total)).log_softmax(1)
