#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training run of examples/resnet50 on small pictures in PyTorch: the same network, initialisation, augmentation, rate and optimizer,
but other random numbers. Prints `step N loss L top-1 T` for every step, `validation N T` every --validate-every steps and at the end."""
import argparse
import math
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from compare_resnet50 import ResNet  # noqa: E402

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pictures(folder):
    """uint8 [n, 3, size, size] and labels [n] of a folder with <class>/*.jpg."""
    files = [(file, label) for label, name in enumerate(sorted(entry.name for entry in folder.iterdir()))
             for file in sorted((folder / name).glob("*.jpg"))]
    images = np.stack([np.asarray(Image.open(file).convert("RGB")) for file, _ in files])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor([label for _, label in files])


def normalised(images):
    images = (images.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
    return images.contiguous(memory_format=torch.channels_last)


def shifted_and_mirrored(images, pad):
    """Shifts each picture by up to `pad` pixels each way over black, and mirrors half of them."""
    size, padded = images.shape[-1], nn.functional.pad(images, (pad,) * 4)
    moved = [padded[i, :, y:y + size, x:x + size] for i, (y, x) in enumerate(torch.randint(0, 2 * pad + 1, (len(images), 2)).tolist())]
    return torch.stack([image.flip(-1) if mirror else image for image, mirror in zip(moved, torch.rand(len(images)) < 0.5)])


def first_values(model):
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def rate_at(step, o):
    """Rises linearly to the peak in a tenth of the steps, then falls along half a cosine to 0."""
    warmup = o.steps // 10
    if step < warmup:
        return o.learning_rate * (step + 1) / warmup
    return o.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (o.steps - warmup)))


def endless(count, batch):
    """Indices of batches. Each epoch is a new permutation; a batch may span two epochs."""
    left = torch.empty(0, dtype=torch.long)
    while True:
        while len(left) < batch:
            left = torch.cat([left, torch.randperm(count)])
        yield left[:batch]
        left = left[batch:]


def validation(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(normalised(images[i:i + 500])).argmax(1) == labels[i:i + 500]).sum().item() for i in range(0, len(images), 500))
    model.train()
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/<class>/*.jpg and val/<class>/*.jpg")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--validate-every", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--weight-decay", type=float, default=1e-4, help="not applied to batch norm and biases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    images, labels = pictures(o.data / "train")
    unseen = pictures(o.data / "val")
    model = ResNet(o.depth, int(labels.max()) + 1, cifar=True).to(memory_format=torch.channels_last)
    first_values(model)
    vectors = [p for p in model.parameters() if p.dim() < 2]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    optimizer = torch.optim.SGD([{"params": matrices, "weight_decay": o.weight_decay}, {"params": vectors, "weight_decay": 0}],
                                lr=o.learning_rate, momentum=0.9, nesterov=True)
    for step, chosen in zip(range(o.steps), endless(len(images), o.batch)):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, o)
        logits = model(normalised(shifted_and_mirrored(images[chosen], images.shape[-1] // 8)))
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step + 1} loss {loss.item():.6g} top-1 {(logits.argmax(1) == labels[chosen]).float().mean().item():.6g}", flush=True)
        if (step + 1) % o.validate_every == 0 or step + 1 == o.steps:
            print(f"validation {step + 1} {validation(model, *unseen):.6g}", flush=True)


main()
