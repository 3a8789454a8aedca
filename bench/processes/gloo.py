#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times collectives of Gloo through torch.distributed, in the same way as timing.hpp. PyTorch all-reduces and broadcasts in
place. compare_processes starts it with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

import sys
import time

import torch
import torch.distributed as dist


def lengths(collective, size, processes):
    part = size // 4 // processes
    return {"reduce_scatter": (part, part * processes, part), "all_gather": (part, part, part * processes),
            "all_to_all": (part, part * processes, part * processes)}.get(collective, (size // 4,) * 3)


def given(process, count, begin=0):
    return (process + 1) * (1 + torch.arange(begin, begin + count) % 5).float()


def prepared(collective, source, target):
    return {"all_reduce": lambda: dist.all_reduce(target),
            "broadcast": lambda: dist.broadcast(target, 0),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(target, source),
            "all_gather": lambda: dist.all_gather_into_tensor(target, source),
            "all_to_all": lambda: dist.all_to_all_single(target, source)}[collective]


def require_right(collective, block, source, target, call):
    me, processes = dist.get_rank(), dist.get_world_size()
    source.copy_(given(me, source.numel()))
    if collective in ("all_reduce", "broadcast"):
        target.copy_(source)
    dist.barrier()
    call()
    if collective == "all_gather":
        wanted = torch.cat([given(r, block) for r in range(processes)])
    elif collective == "all_to_all":
        wanted = torch.cat([given(r, block, me * block) for r in range(processes)])
    elif collective == "reduce_scatter":
        wanted = given(processes * (processes + 1) // 2 - 1, block, me * block)
    else:
        wanted = given(0 if collective == "broadcast" else processes * (processes + 1) // 2 - 1, block)
    if not torch.equal(target, wanted):
        sys.exit(f"process {me}: {collective} of {block} elements is wrong")
    target.zero_()  # else repeated sums in place would grow
    dist.barrier()


def sampled(call, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    slowest = torch.tensor([(time.perf_counter() - begin) / calls * 1e6], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def microseconds(call, size, samples):
    longest_sample = 20000
    most = min(max((1 << 24) // size, 1), 200)
    calls = min(max(int(longest_sample / sampled(call, min(most, 5))), 1), most)
    sampled(call, calls)
    times = [sampled(call, calls) for _ in range(samples)]
    return sorted(times)[len(times) // 2], min(times)


def main():
    options = dict(word.split("=", 1) for word in sys.argv[1:])
    collective, size = options.get("collective", "all_reduce"), int(options.get("smallest", 4))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    while size <= int(options.get("largest", 256 << 20)):
        block, inputs, outputs = lengths(collective, size, dist.get_world_size())
        if block:
            source, target = torch.zeros(inputs), torch.zeros(outputs)
            call = prepared(collective, source, target)
            require_right(collective, block, source, target, call)
            samples = int(options.get("samples", 15))
            median, least = microseconds(call, size, min(samples, 5) if size >= 16 << 20 else samples)
            if dist.get_rank() == 0:
                print(size, f"{median:.3f} {least:.3f}", flush=True)
        size *= 4
    dist.destroy_process_group()


main()
