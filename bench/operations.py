#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of the operations of bench/operations.cpp in PyTorch, forward and backward. Prints the median microseconds and the peak of memory
beyond what the inputs take. bench/compare_operations runs both. With --turns it measures in turns with other programs (turns.py)."""
import argparse

import torch
from torch.nn import functional

from turns import peak_mib, take_turns, time_steps


def slices(x):
    h = torch.zeros(x.shape[1:])
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] + h)
    return h


def attention(causal, **options):
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **options)


padded = torch.ones(2, 1, 1, 1024, dtype=torch.bool)
padded[1, :, :, 512:] = False
window = torch.ones(1024, 1024, dtype=torch.bool).tril().triu(-255)


gru_weights = [(768, 128), (768, 256), (768,), (768,)]


def gru(x, *weights):
    return torch.gru(x, torch.zeros(1, x.shape[1], 256), weights, True, 1, 0.0, True, False, False)[0]


# name: (function, shapes of its inputs, repetitions)
operations = {
    "slices_64": (slices, [(64, 16, 768)]),
    "slices_256": (slices, [(256, 16, 768)]),
    "gru_64": (gru, [(64, 16, 128), *gru_weights]),
    "gru_256": (gru, [(256, 16, 128), *gru_weights]),
    "depthwise_7x7": (lambda x, w: functional.conv2d(x, w, padding=3, groups=96), [(8, 96, 32, 32), (96, 1, 7, 7)]),
    "depthwise_5x5": (lambda x, w: functional.conv2d(x, w, padding=2, groups=96), [(8, 96, 32, 32), (96, 1, 5, 5)]),
    "depthwise_3x3": (lambda x, w: functional.conv2d(x, w, padding=1, groups=96), [(8, 96, 32, 32), (96, 1, 3, 3)]),
    "layer_norm_192": (lambda x, g, b: functional.layer_norm(x, (192,), g, b), [(2056, 192), (192,), (192,)]),
    "layer_norm_96": (lambda x, g, b: functional.layer_norm(x, (96,), g, b), [(8192, 96), (96,), (96,)]),
    "softmax_257": (lambda x: torch.softmax(x, -1), [(6168, 257)]),
    "softmax_4096": (lambda x: torch.softmax(x, -1), [(1024, 4096)]),
    "attention_257": (attention(False), [(8, 3, 257, 64)] * 3),
    "attention_257_causal": (attention(True), [(8, 3, 257, 64)] * 3),
    "attention_1024_causal": (attention(True), [(2, 4, 1024, 64)] * 3),
    "attention_1024_dropout": (attention(True, dropout_p=0.1), [(2, 4, 1024, 64)] * 3),
    "attention_1024_padded": (attention(False, attn_mask=padded), [(2, 4, 1024, 64)] * 3),
    "attention_1024_window": (attention(False, attn_mask=window), [(2, 4, 1024, 64)] * 3),
    "attention_1024_groups": (attention(True, enable_gqa=True), [(2, 8, 1024, 64), (2, 2, 1024, 64), (2, 2, 1024, 64)]),
    "silu": (functional.silu, [(3145728,)]),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), [(3145728,)]),
    "permute": (lambda x: x.permute(0, 2, 3, 1).contiguous(), [(8, 96, 64, 64)]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=operations)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long to measure")
    parser.add_argument("--turns", choices=["yes"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    function, shapes = operations[options.name]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    with torch.no_grad():
        upstream = torch.randn(function(*inputs).shape)

    def step():
        for x in inputs:
            x.grad = None
        function(*inputs).backward(upstream)

    def measure():
        step()
        time_steps(options.seconds, before, step)

    before = peak_mib()
    take_turns(options.turns, measure)


main()
