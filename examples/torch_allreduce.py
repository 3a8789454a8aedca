#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Averages PyTorch gradients by replicator's collectives (libreplicator-c, by ctypes), and checks them against DDP.

Each replica has its own batch, and each process computes the share of some replicas. A second model with the same seed and data
is trained by torch's DistributedDataParallel over gloo. After every step the gradients and weights of both are compared.
    examples/torch_allreduce.py --library build/libreplicator-c.so --processes 1 2 3
    torchrun --nproc-per-node 2 examples/torch_allreduce.py --library build/libreplicator-c.so

Fails if a gradient differs from DDP's by more than 5e-6 of the tensor's largest element, or if the weights have other bits on
another number of processes. DDP's own weights may differ there: their digest is printed as well.
"""

import argparse
import ctypes
import hashlib
import os
import re
import socket
import subprocess
import sys


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("replicas", ctypes.c_int), ("transport", ctypes.c_char_p),
        ("deadline", ctypes.c_double), ("world_size", ctypes.c_int), ("rank", ctypes.c_int),
        ("master_address", ctypes.c_char_p), ("master_port", ctypes.c_int),
    ]


class World:
    """Three calls of the library: init, all_reduce, finish."""

    SUM, MEAN, MIN, MAX = range(4)

    def __init__(self, library, rank, size, address, port, replicas=0):
        self.dll = ctypes.CDLL(library)
        self.dll.replicator_last_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        options = Options(size=ctypes.sizeof(Options), replicas=replicas, world_size=size, rank=rank,
                          master_address=address.encode(), master_port=port)
        self.check(self.dll.replicator_init_with(ctypes.byref(self.handle), ctypes.byref(options)))
        first = self.dll.replicator_first_replica(self.handle)
        self.local_replicas = range(first, first + self.dll.replicator_local_replicas(self.handle))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.dll.replicator_last_error(self.handle).decode())

    def all_reduce(self, tensors, reduction=SUM):
        """Reduces one tensor for each local replica."""
        import torch
        dtypes = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
        blocks = torch.stack(tensors).cpu()
        result = torch.empty_like(blocks[0])
        self.check(self.dll.replicator_all_reduce(
            self.handle, ctypes.c_void_p(blocks.data_ptr()), ctypes.c_void_p(result.data_ptr()),
            ctypes.c_int64(result.numel()), dtypes.index(result.dtype), reduction))
        return result

    def finish(self):
        self.check(self.dll.replicator_finish(self.handle))
        self.dll.replicator_free(self.handle)
        self.handle = ctypes.c_void_p()


def make_model(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(512, 300), torch.nn.ReLU(),
        torch.nn.Linear(300, 10))


def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def largest_difference(pairs):
    """Relative to the largest element of each pair's second tensor. Propagates NaN."""
    worst = 0.0
    for mine, theirs in pairs:
        difference = ((mine - theirs).abs().max() / theirs.abs().max()).item()
        worst = difference if difference != difference else max(worst, difference)
    return worst


def work(arguments):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    # torch listens on MASTER_PORT; the library uses the next port.
    world = World(arguments.library, rank, size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1,
                  arguments.replicas)
    ours, reference = make_model(torch), torch.nn.parallel.DistributedDataParallel(make_model(torch))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in (ours, reference)]
    cross_entropy = torch.nn.functional.cross_entropy
    generators = [torch.Generator().manual_seed(replica + 1) for replica in world.local_replicas]
    gradients_off = weights_off = 0.0
    for step in range(arguments.steps):
        data = [(torch.randn(8, 3, 32, 32, generator=g), torch.randint(10, (8,), generator=g)) for g in generators]
        # The gradient of each replica is computed separately: it must not depend on the other replicas of the process.
        gradients = [torch.autograd.grad(cross_entropy(ours(x), y), tuple(ours.parameters())) for x, y in data]
        for place, parameter in enumerate(ours.parameters()):
            parameter.grad = world.all_reduce([each[place] for each in gradients], World.MEAN)
        # DDP averages the processes' sums. The scaling comes afterwards, because scaling the loss would change every
        # rounding.
        optimizers[1].zero_grad()
        sum(cross_entropy(reference(x), y) for x, y in data).backward()
        for parameter in reference.parameters():
            parameter.grad *= size / arguments.replicas
        off = largest_difference((a.grad, b.grad) for a, b in zip(ours.parameters(), reference.parameters()))
        for optimizer in optimizers:
            optimizer.step()
        gradients_off = max(gradients_off, off) if off == off else off
        weights_off = largest_difference((a.detach(), b.detach()) for a, b in zip(ours.parameters(), reference.parameters()))
        if rank == 0 and arguments.each_step:
            print(f"  step {step + 1}: gradients {off:.3g}, weights {weights_off:.3g}")
    world.finish()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{size} processes, {arguments.replicas} replicas, {arguments.steps} steps: gradients differ from DDP's by at most "
              f"{gradients_off:.3g} of the largest, weights at the end by {weights_off:.3g}; weights {digest(ours)} (DDP's {digest(reference)[:8]})",
              flush=True)
    # A NaN is a failure.
    return 0 if gradients_off <= 5e-6 else 1


def free_ports():
    """A free port with a free successor."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                pass


def run_job(processes):
    """Starts this program as so many processes. Returns the worst exit code and the output of process 0."""
    port = free_ports()
    children = []
    for rank in range(processes):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        children.append(subprocess.Popen([sys.executable, *sys.argv], env=environment, text=True,
                                         stdout=subprocess.PIPE if rank == 0 else None))
    text = children[0].communicate()[0]
    print(text, end="", flush=True)
    return max(abs(child.wait()) for child in children), text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="libreplicator-c.so")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3], help="sizes of the jobs to start, without a launcher")
    parser.add_argument("--replicas", type=int, default=6, help="number of replicas, each with its own batch, on any number of processes")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--each-step", action="store_true", help="print the differences after each step")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return work(arguments)
    results = [run_job(processes) for processes in arguments.processes]
    if any(status for status, _ in results):
        return 1
    bits = {re.search("weights ([0-9a-f]{64})", text).group(1) for _, text in results}
    print(f"the weights have {'the same' if len(bits) == 1 else 'OTHER'} bits on {arguments.processes} processes")
    return 0 if len(bits) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
