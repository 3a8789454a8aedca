#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of bench/resnet_step.cpp in PyTorch, tuned: channels-last, a fused optimizer.

bench/run sets the allocator so that pages stay mapped. --bfloat16 computes under autocast. --compile compiles forward and backward; on
a GPU (--device cuda) as CUDA graphs. As one of several processes (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT) it is a replica of
DistributedDataParallel over Gloo, and --batch counts the pictures of all of them. With --turns it measures in turns with other programs
(turns.py). Prints the median seconds of a step and images/s; then the resident memory before the model was made, and its peak."""
import argparse
import os
import time

import torch
from torch import nn

from turns import take_turns


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet50(cifar_stem):
    stem = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if cifar_stem else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers = [stem, nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if not cifar_stem:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def tuned(optimizer, parameters, **options):
    try:
        return optimizer(parameters, fused=True, **options)
    except (TypeError, RuntimeError):  # an older PyTorch
        return optimizer(parameters, **options)


def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--turns", choices=["yes"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    before = resident("VmRSS")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # replicator's float32 is float32
    model = resnet50(options.image_size < 64).to(options.device, memory_format=torch.channels_last)
    optimizer = tuned(torch.optim.SGD, list(model.parameters()), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    processes = int(os.environ.get("WORLD_SIZE", 1))
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    batch = options.batch // processes
    images = torch.rand(batch, 3, options.image_size, options.image_size).to(options.device, memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,)).to(options.device)

    def loss_of(images, labels):
        with torch.autocast(options.device, torch.bfloat16, enabled=options.bfloat16):
            return criterion(model(images), labels)

    if options.compile:
        loss_of = torch.compile(loss_of, mode="reduce-overhead" if options.device == "cuda" else None)
    first = 3 if options.device == "cuda" or options.compile or processes > 1 else 1  # warm-up steps: they choose algorithms, compile and capture

    def step():
        begin = time.perf_counter()
        loss = loss_of(images, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()
        return time.perf_counter() - begin

    def measure():
        seconds = sorted(step() for _ in range(options.steps))
        median = seconds[len(seconds) // 2]
        print(f"{median:.4f} s/step {options.batch / median:.2f} images/s")
        print(f"resident: {before:.0f} MiB before the model, at most {resident('VmHWM'):.0f} MiB")

    for _ in range(first):
        step()
    take_turns(options.turns, measure)
    if processes > 1:
        torch.distributed.destroy_process_group()


main()
