#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss and gradients of the networks of bench/architectures.py, beside those that bench/architectures wrote.

  bench/architecture_gradients.py NAME OURS.safetensors --dtype float32    as bench/compare_architectures --parity calls it
  bench/architecture_gradients.py --store tests/data/architecture_gradients.txt

The difference of two gradients a and b is |a - b| / |b|, by Euclidean norms. Some gradients are zero but for rounding: a shift before
batch norm has no effect. So |b| counts as at least a thousandth of the root of the mean |b|^2 of all gradients."""
import argparse
import json

import numpy as np
import torch

from architectures import catalog, gradients, salt_of
from hashed import hashed


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    types = {"F32": np.float32, "F64": np.float64}
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]]).astype(np.float64).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def scale(found):
    """A thousandth of the root of the mean square of the norms."""
    return 1e-3 * float(np.sqrt(np.mean([np.sum(value**2) for name, value in found.items() if name != "loss"])))


def differences(a, b):
    least = scale(b)
    return {name: float(np.linalg.norm(a[name] - b[name]) / max(np.linalg.norm(b[name]), least)) for name in b}


def compare(name, path, dtype, seed):
    """As JSON: the number of gradients, the name and size of the largest difference, that of the loss, and both systems' largest
    difference from PyTorch's float64."""
    ours, theirs, exact = read_safetensors(path), gradients(name, dtype, seed), gradients(name, torch.float64, seed)
    shapes = [{key: value.shape for key, value in found.items()} for found in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise SystemExit(f"{name}: the networks differ in {sorted(key for key, _ in shapes[0].items() ^ shapes[1].items())}")
    between = differences(ours, theirs)
    worst = max(between, key=between.get)
    print(json.dumps([len(ours) - 1, worst, between[worst], between["loss"], max(differences(ours, exact).values()), max(differences(theirs, exact).values())]))


def store(path):
    """For each tiny network its loss and the scale of its gradients, and for each gradient: name, norm, dot product with hashed numbers,
    first element. In float64."""
    with open(path, "w") as file:
        for name in catalog:
            if not name.startswith("tiny/"):
                continue
            found = gradients(name, torch.float64)
            file.write(f"{name} {len(found) - 1} {found['loss']:.16g} {scale(found):.16g}\n")
            for key, value in found.items():
                if key != "loss":
                    g = value.ravel()
                    dot = np.dot(g, hashed(g.size, (salt_of(key) + 1) & 0xFFFFFFFF).astype(np.float64))
                    file.write(f"{key} {np.linalg.norm(g):.16g} {dot:.16g} {g[0]:.16g}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=catalog)
    parser.add_argument("ours", nargs="?", help="a file that bench/architectures wrote")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--store", metavar="FILE", help="write what the tests of tests/models expect")
    options = parser.parse_args()
    if options.store:
        store(options.store)
    else:
        compare(options.name, options.ours, getattr(torch, options.dtype), options.seed)


main()
