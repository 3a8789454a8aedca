#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The networks of bench/architectures in PyTorch, with the same names of weights. Prints the median microseconds of a training step
(forward, backward, SGD with momentum), and the most memory that steps took. bench/compare_architectures runs both.

--compile compiles forward and backward. `gradients` gives those of a first step, with hashed weights.
With --turns it measures in turns with other programs (turns.py)."""
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hashed import hashed
from turns import peak_mib, take_turns, time_steps


def cross_entropy(logits, labels):
    """Of the classes along the last axis."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


class ConvolutionAndNorm(nn.Module):
    def __init__(self, inputs, features, kernel, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, features, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(features)

    def forward(self, x):
        return self.bn(self.conv(x))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(functional.gelu(self.up(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def channel_norm(norm, x):
    return norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtStage(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.norm, self.reduce = (nn.LayerNorm(inputs, eps=1e-6), nn.Conv2d(inputs, width, 2, 2)) if inputs else (None, None)
        self.blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(depth)))

    def forward(self, x):
        return self.blocks(self.reduce(channel_norm(self.norm, x)) if self.norm else x)


class ConvNeXt(nn.Module):
    channels_last = True

    def __init__(self, batch, pixels, classes, widths, depths):
        super().__init__()
        self.numbers, self.labels, self.classes = (batch, 3, pixels, pixels), (batch,), classes
        self.stem = nn.Conv2d(3, widths[0], 4, 4)
        self.stem_norm = nn.LayerNorm(widths[0], eps=1e-6)
        self.stages = nn.Sequential(*(ConvNeXtStage(*of) for of in zip((0, *widths), widths, depths)))
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x, labels):
        x = self.stages(channel_norm(self.stem_norm, self.stem(x)))
        return cross_entropy(self.head(self.norm(x.mean((2, 3)))), labels)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, expansion, width, stride):
        super().__init__()
        wide = inputs * expansion
        self.expand = None if expansion == 1 else ConvolutionAndNorm(inputs, wide, 1)
        self.depthwise = ConvolutionAndNorm(wide, wide, 3, stride, wide)
        self.project = ConvolutionAndNorm(wide, width, 1)
        self.shortcut = stride == 1 and inputs == width

    def forward(self, x):
        y = functional.relu6(self.expand(x)) if self.expand else x
        y = self.project(functional.relu6(self.depthwise(y)))
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    channels_last = True

    def __init__(self, batch, pixels, classes, stem, features, stages):
        super().__init__()
        self.numbers, self.labels, self.classes = (batch, 3, pixels, pixels), (batch,), classes
        self.stem = ConvolutionAndNorm(3, stem, 3, 2)
        blocks, inputs = [], stem
        for expansion, width, count, stride in stages:
            for i in range(count):
                blocks.append(InvertedResidual(inputs, expansion, width, 1 if i else stride))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.last = ConvolutionAndNorm(inputs, features, 1)
        self.head = nn.Linear(features, classes)

    def forward(self, x, labels):
        x = functional.relu6(self.last(self.blocks(functional.relu6(self.stem(x)))))
        return cross_entropy(self.head(x.mean((2, 3))), labels)


class TwoConvolutions(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.first = ConvolutionAndNorm(inputs, width, 3)
        self.second = ConvolutionAndNorm(width, width, 3)

    def forward(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))))


class UNet(nn.Module):
    channels_last = False

    def __init__(self, batch, pixels, classes, widths):
        super().__init__()
        self.numbers, self.labels, self.classes = (batch, 3, pixels, pixels), (batch, pixels, pixels), classes
        self.down = nn.ModuleList(TwoConvolutions(*of) for of in zip((3, *widths), widths))
        self.up = nn.ModuleList(TwoConvolutions(a + b, a) for a, b in zip(widths, widths[1:]))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x, labels):
        skipped = []
        for i, layer in enumerate(self.down):
            x = layer(functional.max_pool2d(x, 2) if i else x)
            skipped.append(x)
        for skip, layer in reversed(list(zip(skipped, self.up))):
            x = layer(torch.cat([skip, functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)], 1))
        return functional.cross_entropy(self.head(x), labels)


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    channels_last = False

    def __init__(self, batch, pixels, patch, classes, width, heads, depth):
        super().__init__()
        self.numbers, self.labels, self.classes = (batch, 3, pixels, pixels), (batch,), classes
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (pixels // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, False) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x, labels):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return cross_entropy(self.head(self.norm(self.blocks(x))[:, 0]), labels)


class Gpt(nn.Module):
    channels_last = False

    def __init__(self, batch, context, classes, width, heads, depth):
        super().__init__()
        self.numbers, self.labels, self.classes = (1,), (batch, context + 1), classes
        self.words = nn.Parameter(0.02 * torch.randn(classes, width))
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, _, text):
        x = functional.embedding(text[:, :-1], self.words) + self.places
        return cross_entropy(self.norm(self.blocks(x)) @ self.words.T, text[:, 1:])


class Gru(nn.Module):
    channels_last = False

    def __init__(self, places, batch, inputs, features, classes):
        super().__init__()
        self.numbers, self.labels, self.classes = (places, batch, inputs), (places, batch), classes
        self.gru = nn.GRU(inputs, features)
        self.head = nn.Linear(features, classes)

    def forward(self, x, labels):
        return cross_entropy(self.head(self.gru(x)[0]), labels)


mobilenet_v2_stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

# As in architectures/catalog.hpp. "small/" before its name: a smaller batch. "tiny/": as small as tests need.
catalog = {
    "convnext": lambda: ConvNeXt(8, 128, 1000, (96, 192, 384, 768), (1, 1, 3, 1)),
    "vit": lambda: ViT(8, 256, 16, 1000, 192, 3, 4),
    "gpt": lambda: Gpt(2, 512, 4096, 256, 4, 4),
    "unet": lambda: UNet(2, 128, 10, (32, 64, 128, 256)),
    "mobilenet_v2": lambda: MobileNetV2(8, 96, 1000, 32, 1280, mobilenet_v2_stages),
    "gru_64": lambda: Gru(64, 16, 128, 256, 64),
    "gru_256": lambda: Gru(256, 16, 128, 256, 64),
    "small/convnext": lambda: ConvNeXt(2, 64, 1000, (96, 192, 384, 768), (1, 1, 3, 1)),
    "small/vit": lambda: ViT(2, 96, 16, 1000, 192, 3, 4),
    "small/gpt": lambda: Gpt(1, 300, 4096, 256, 4, 4),
    "small/unet": lambda: UNet(2, 32, 10, (32, 64, 128, 256)),
    "small/mobilenet_v2": lambda: MobileNetV2(4, 64, 1000, 32, 1280, mobilenet_v2_stages),
    "tiny/convnext": lambda: ConvNeXt(2, 32, 5, (6, 10), (1, 1)),
    "tiny/vit": lambda: ViT(2, 16, 4, 5, 12, 3, 1),
    "tiny/gpt": lambda: Gpt(2, 9, 11, 12, 3, 1),
    "tiny/unet": lambda: UNet(2, 8, 3, (4, 6)),
    "tiny/mobilenet_v2": lambda: MobileNetV2(3, 16, 5, 4, 10, ((1, 6, 1, 1), (3, 6, 1, 1), (2, 8, 1, 2))),
    "tiny/gru": lambda: Gru(7, 3, 5, 6, 4),
}


def salt_of(name):
    salt = 0x811C9DC5
    for letter in name.encode():
        salt = ((salt ^ letter) * 0x01000193) & 0xFFFFFFFF
    return salt


def weight(name, shape, seed):
    """As in architectures/catalog.hpp."""
    v = hashed(math.prod(shape), (salt_of(name) + seed) & 0xFFFFFFFF).astype(np.float64)
    of_norm = "bn." in name
    if len(shape) > 1:
        v = v * (4 / math.sqrt(math.prod(shape) / shape[0]))
    elif name.endswith(("weight", "scale")):
        v = (v * 0.5 + 1) * (0.375 if of_norm else 1)
    elif of_norm:
        v = (v * 0.25 + 1) * np.where(v > 0.375, 5.25, 0.75)
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def batch_for(network, dtype):
    numbers = torch.from_numpy(4 * hashed(math.prod(network.numbers), 1000)).reshape(network.numbers).to(dtype)
    labels = (hashed(math.prod(network.labels), 1001).astype(np.float64) + 0.5) * network.classes
    return numbers, torch.from_numpy(labels.astype(np.int64)).reshape(network.labels)


def gradients(name, dtype, seed=0):
    """{"loss": ..., name of a weight: ...} of a first step."""
    network = catalog[name]().to(dtype)
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            parameter.copy_(weight(key, tuple(parameter.shape), seed))
    loss = network(*batch_for(network, dtype))
    loss.backward()
    return {"loss": loss.detach().double().numpy(), **{key: parameter.grad.double().numpy() for key, parameter in network.named_parameters()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=catalog)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2, help="how long to measure")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--layout", choices=("best", "contiguous", "channels_last"), default="best", help="of pictures; best: the faster one, as measured")
    parser.add_argument("--turns", choices=["yes"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    before = peak_mib()
    network = catalog[options.name]()
    numbers, labels = batch_for(network, torch.float32)
    if options.layout == "channels_last" or options.layout == "best" and network.channels_last:
        network, numbers = network.to(memory_format=torch.channels_last), numbers.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, fused=True)
    loss_of = torch.compile(network) if options.compile else network

    def step():
        loss = loss_of(numbers, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def measure():
        time_steps(options.seconds, before, step)

    for _ in range(2):
        step()
    take_turns(options.turns, measure)


if __name__ == "__main__":
    main()
