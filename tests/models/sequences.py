"""Networks for sequences: transformers, recurrent classifiers, and control flow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

WORDS = 50


@dataclass(frozen=True)
class Scale:
    """The sizes of a transformer. ``places`` is the longest sequence."""

    width: int = 32
    heads: int = 4
    layers: int = 1
    places: int = 64
    image: int = 32
    patch: int = 8

    @property
    def each(self) -> int:
        """The size of a head."""
        return self.width // self.heads


SMALL = Scale()
FULL = Scale(768, 12, 12, 512, 224, 16)


class Attention(nn.Module):
    """Self-attention; ``past`` holds the keys and values of earlier calls."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale
        self.project, self.out = nn.Linear(scale.width, 3 * scale.width), nn.Linear(scale.width, scale.width)

    def forward(self, x, mask=None, past=None):
        batch, length, width = x.shape
        parts = self.project(x).view(batch, length, 3, self.scale.heads, self.scale.each)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        y = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, width)), keys, values


class Layer(nn.Module):
    """A transformer's layer; it normalizes before its parts (GPT, ViT) or after them (BERT)."""

    def __init__(self, scale: Scale, before: bool) -> None:
        super().__init__()
        width = scale.width
        self.before, self.attention = before, Attention(scale)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed(self, x):
        return self.narrow(functional.gelu(self.wide(x)))

    def forward(self, x, mask=None, past=None):
        if self.before:
            y, *cache = self.attention(self.first(x), mask, past)
            x = x + y
            return x + self.feed(self.second(x)), *cache
        y, *cache = self.attention(x, mask, past)
        x = self.first(x + y)
        return self.second(x + self.feed(x)), *cache


class Encoder(nn.Module):
    """As BERT: words, a mask of padding, kinds of segments."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        width = scale.width
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(scale.places, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(scale, before=False) for _ in range(scale.layers))
        self.pool = nn.Linear(width, width)

    def forward(self, ids, mask, kinds):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1]))[None] + self.kinds(kinds))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)[0]
        return x, torch.tanh(self.pool(x[:, 0]))


class Decoder(nn.Module):
    """As GPT-2: the cache of keys and values is an input and an output."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, scale.width), nn.Embedding(scale.places, scale.width)
        self.layers = nn.ModuleList(Layer(scale, before=True) for _ in range(scale.layers))
        self.norm = nn.LayerNorm(scale.width)

    def forward(self, ids, *caches):
        past, length = caches[0].shape[2], ids.shape[1]
        place = torch.arange(past, past + length)
        x = self.words(ids) + self.places(place)[None]
        mask = torch.arange(past + length)[None, :] <= place[:, None]
        made = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, mask, caches[2 * number : 2 * number + 2])
            made += [keys, values]
        return self.norm(x) @ self.words.weight.T, *made


class CachedDecoder(Decoder):
    """A decoder of two layers; torch's exporter takes a fixed number of inputs."""

    def forward(self, ids, k0, v0, k1, v1):
        return super().forward(ids, k0, v0, k1, v1)


class VisionTransformer(nn.Module):
    def __init__(self, scale: Scale) -> None:
        super().__init__()
        width, count = scale.width, (scale.image // scale.patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, scale.patch, scale.patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, count, width))
        self.layers = nn.ModuleList(Layer(scale, before=True) for _ in range(scale.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(self.norm(x)[:, 0])


class Llama(nn.Module):
    """RMSNorm, rotary embeddings, two heads of keys for four of queries, a gated feed-forward part."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale, width, narrow = scale, scale.width, scale.width // 2
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.keys, self.values = (nn.Linear(width, narrow, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.register_buffer("speed", 10000 ** -(torch.arange(0, scale.each, 2) / scale.each))

    def forward(self, x, places):
        batch, length, width = x.shape
        angle = places[:, :, None].float() * self.speed
        angle = torch.cat([angle, angle], -1)[:, None]

        def heads(linear, count):
            return linear(y).view(batch, length, count, self.scale.each).transpose(1, 2)

        def turn(part):
            left, right = part.chunk(2, -1)
            return part * angle.cos() + torch.cat([-right, left], -1) * angle.sin()

        y, count = self.first(x), self.scale.heads
        queries, keys = turn(heads(self.queries, count)), turn(heads(self.keys, count // 2))
        values = heads(self.values, count // 2)
        y = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Recurrent(nn.Module):
    """A classifier of sequences, by two layers in both directions."""

    def __init__(self, kind: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = kind(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, 5)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0][:, -1])


class Branches(nn.Module):
    """torch.cond: an If, whose branches read values and weights outside of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        mean = x.mean(1)
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + mean, lambda x: x.relu() - mean, (x[:, 0],))


class Grows(nn.Module):
    """Loops of a script: over the axis of time, with a result that grows and a list; and by the data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        state, found, states = x[:, 0] * 0, x, []
        for i in range(x.size(1)):
            state = torch.tanh(self.linear(state) + x[:, i])
            if bool(state.sum() > 0):
                state = state * 0.5 - i
            found = torch.cat([found, state[:, None] + found[:, :1]], 1)
            states.append(state)
        while bool(state.abs().sum() > 1.0):
            state = state * 0.7
        return found, state, torch.stack(states, 1)


class Scans(nn.Module):
    """torch's scan over the axis of time: a Scan."""

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        return scan(lambda state, item: (state * 0.9 + item, (state + item).sin()), x[:, 0] * 1, x, dim=1)
