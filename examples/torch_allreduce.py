#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Averages PyTorch gradients by replicator's collectives (libreplicator-c, by ctypes), and checks every gradient of every
step against torch's own DistributedDataParallel over gloo.

    examples/torch_allreduce.py --library build/libreplicator-c.so --processes 2
    torchrun --nproc-per-node 2 examples/torch_allreduce.py --library build/libreplicator-c.so

Fails where a gradient differs from DDP's by more than 1e-6 of the tensor's largest element.
"""

import argparse
import ctypes
import os
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
    """The three calls: made, all_reduce_ of tensors in place, finish."""

    SUM, MEAN, MIN, MAX = range(4)

    def __init__(self, library, rank, size, address, port):
        self.dll = ctypes.CDLL(library)
        self.dll.replicator_last_error.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        options = Options(size=ctypes.sizeof(Options), world_size=size, rank=rank,
                          master_address=address.encode(), master_port=port)
        self.check(self.dll.replicator_init_with(ctypes.byref(self.handle), ctypes.byref(options)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.dll.replicator_last_error(self.handle).decode())

    def all_reduce_(self, tensor, reduction=SUM):
        import torch
        dtypes = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
        if not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise ValueError("all_reduce_ takes contiguous tensors of the CPU")
        pointer = ctypes.c_void_p(tensor.data_ptr())
        self.check(self.dll.replicator_all_reduce(self.handle, pointer, pointer, ctypes.c_int64(tensor.numel()),
                                                  dtypes.index(tensor.dtype), reduction))

    def average_gradients(self, model):
        for parameter in model.parameters():
            self.all_reduce_(parameter.grad, self.MEAN)

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


def work(arguments):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    # torch listens on MASTER_PORT, the library on the next one.
    world = World(arguments.library, rank, size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1)

    ours, reference = make_model(torch), torch.nn.parallel.DistributedDataParallel(make_model(torch))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in (ours, reference)]
    generator = torch.Generator().manual_seed(rank + 1)  # each process has data of its own
    worst = 0.0
    for _ in range(arguments.steps):
        images = torch.randn(8, 3, 32, 32, generator=generator)
        labels = torch.randint(10, (8,), generator=generator)
        for model, optimizer in zip((ours, reference), optimizers):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
        world.average_gradients(ours)
        for mine, theirs in zip(ours.parameters(), reference.parameters()):
            difference = (mine.grad - theirs.grad).abs().max() / theirs.grad.abs().max()
            worst = max(worst, difference.item())
        for optimizer in optimizers:
            optimizer.step()

    total = torch.tensor([float(rank + 1)])
    world.all_reduce_(total)
    assert total.item() == size * (size + 1) / 2, total
    world.finish()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{size} processes, {arguments.steps} steps: gradients differ from DDP's by at most {worst:.3g} of the largest")
    # Not-a-number is no success.
    return 0 if worst <= 1e-6 else 1


def free_ports():
    """A port that is free together with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="libreplicator-c.so")
    parser.add_argument("--processes", type=int, default=2, help="to start, where no launcher has")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return work(arguments)
    port = free_ports()
    children = []
    for rank in range(arguments.processes):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(arguments.processes), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port))
        children.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    return max(abs(child.wait()) for child in children)


if __name__ == "__main__":
    sys.exit(main())
