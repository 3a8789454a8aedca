#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the loss and all gradients of a ResNet with PyTorch's, from the same weights and batch.

    scripts/compare_resnet50.py [--depth 50] [--image-size 64] [--batch 4] [--replicas 1] ...
    scripts/compare_resnet50.py --image-size 224 --batch 1 --seed 19

Needs torch, numpy and safetensors, and the program build/examples/resnet_gradients. Passes if norm(a - b) / norm(b) < 1e-4 for
every tensor in float32, where b is PyTorch's. With --store FILE it writes the short form that the tests use.

It also prints a float64 run of PyTorch, because ReLU and max pooling have kinks. An input within rounding of a kink changes
gradients by 1e-3 or more, in any library. If |torch-exact| or |ours-exact| is above 1e-4, take another --seed.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from hashed import hashed  # noqa: E402

BLOCKS = {18: (False, (2, 2, 2, 2)), 34: (False, (3, 4, 6, 3)), 50: (True, (3, 4, 6, 3)),
          101: (True, (3, 4, 23, 3)), 152: (True, (3, 8, 36, 3))}


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        features = width * (4 if bottleneck else 1)
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        widths = (inputs, width, width, features) if bottleneck else (inputs, width, width)
        self.layers = len(kernels)
        for i, kernel in enumerate(kernels):
            strided = stride if i == (1 if bottleneck else 0) else 1
            setattr(self, f"conv{i + 1}", nn.Conv2d(widths[i], widths[i + 1], kernel, strided, kernel // 2, bias=False))
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
        self.downsample = None
        if stride != 1 or inputs != features:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, features, 1, stride, bias=False), nn.BatchNorm2d(features))

    def forward(self, x):
        y = x
        for i in range(1, self.layers + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.layers:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """torchvision's resnet*, with its names. `cifar`: a stem of 3x3, stride 1, without pooling."""

    def __init__(self, depth, classes, cifar):
        super().__init__()
        bottleneck, blocks = BLOCKS[depth]
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if cifar else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(Block(inputs, 64 << stage, 2 if i == 0 and stage else 1, bottleneck))
                inputs = (64 << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def hashed_weights(model, seed):
    """Hashes every parameter from its number. Batch norms get small gains, and shifts away from zero, so that few inputs of
    ReLUs are near the kink. If rounding moves one across it, gradients jump (see --seed)."""
    state = {}
    for salt, (name, parameter) in enumerate(model.named_parameters()):
        v = hashed(parameter.numel(), salt + 10000 * seed)
        last = "bn3" in name or "downsample" in name
        if parameter.dim() > 1:
            v = v * np.float32(4 / np.sqrt(parameter.numel() / parameter.shape[0]))
        elif name.endswith("weight"):
            v = (v * np.float32(0.5) + np.float32(1)) * np.float32(0.2 if last else 0.5)
        elif last:
            v = np.where(v < -0.4, v * np.float32(4), v)
        elif "bn" in name:
            v = np.where(v < -0.25, np.float32(-0.75), np.float32(0.75)) * (v * np.float32(0.2) + np.float32(1))
        state[name] = v.astype(np.float32).reshape(parameter.shape)
    return state


def hashed_batch(batch, size, classes):
    images = (hashed(batch * 3 * size * size, 1000) * np.float32(4)).reshape(batch, 3, size, size)
    return {"images": images, "labels": ((np.arange(batch) * 7 + 3) % classes).astype(np.int32)}


def reference(depth, cifar, weights, batch, dtype, device):
    model = ResNet(depth, weights["fc.bias"].shape[0], cifar)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()}, strict=False)
    model.to(device, dtype).train()
    images, labels = (torch.from_numpy(batch[name]).to(device) for name in ("images", "labels"))
    loss = nn.functional.cross_entropy(model(images.to(dtype)), labels.long())
    loss.backward()
    result = {name: parameter.grad.double().cpu().numpy() for name, parameter in model.named_parameters()}
    result["loss"] = np.array(loss.item())
    return result


def difference(a, b):
    return float(np.linalg.norm((a - b).ravel()) / max(np.linalg.norm(b.ravel()), 1e-300))


def store(path, found, weights):
    """One line for each tensor: name, norm, dot product with hashed numbers, three elements."""
    with open(path, "w") as file:
        file.write(f"loss {found['loss']:.9g}\n")
        for salt, name in enumerate(weights):
            g = found[name].ravel()
            at = [0, g.size // 2, g.size - 1]
            dot = np.dot(g, hashed(g.size, 2000 + salt).astype(np.float64))
            file.write(f"{name} {np.linalg.norm(g):.7g} {dot:.7g} " + " ".join(f"{g[i]:.6g}" for i in at) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=50, choices=BLOCKS)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--stem", choices=("imagenet", "cifar"), default="imagenet")
    parser.add_argument("--seed", type=int, default=7, help="seed of the weights; with a good one PyTorch agrees in float32 and float64")
    parser.add_argument("--replicas", type=int, default=1, help="more than 1: cross-replica batch norm; the replicas share the batch")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--devices", default="cpu:0", help="devices of replicator")
    parser.add_argument("--torch-device", default="cpu", help="device of PyTorch's float32 run, as cuda:0; never with TF32")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "examples", "resnet_gradients"))
    parser.add_argument("--store", metavar="FILE", help="only write PyTorch's values (float64) in a short form")
    o = parser.parse_args()

    weights = hashed_weights(ResNet(o.depth, o.classes, o.stem == "cifar"), o.seed)
    batch = hashed_batch(o.batch, o.image_size, o.classes)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # replicator's float32 is float32
    exact = reference(o.depth, o.stem == "cifar", weights, batch, torch.float64, "cpu")
    if o.store:
        store(o.store, exact, weights)
        return 0
    theirs = reference(o.depth, o.stem == "cifar", weights, batch, torch.float32, o.torch_device)
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("weights.safetensors", "batch.safetensors", "out.safetensors")]
        save_file(weights, files[0])
        save_file(batch, files[1])
        subprocess.run([o.program, str(o.depth), o.stem, *files, "--replicas", str(o.replicas), "--devices", o.devices], check=True)
        ours = {name: value.astype(np.float64) for name, value in load_file(files[2]).items()}

    print(f"{'tensor':40} {'|ours-torch|':>13} {'|ours-exact|':>13} {'|torch-exact|':>13}   relative to the norm")
    worst = 0.0
    for name in ["loss", *weights]:
        error = difference(ours[name], theirs[name])
        worst = max(worst, error)
        print(f"{name:40} {error:13.2e} {difference(ours[name], exact[name]):13.2e} {difference(theirs[name], exact[name]):13.2e}"
              + ("" if error < o.tolerance else "   TOO LARGE"))
    print(f"{len(weights)} gradients, the largest difference is {worst:.2e}: {'passed' if worst < o.tolerance else 'FAILED'}")
    return 0 if worst < o.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
