#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of bench/mlp_step.cpp in PyTorch, tuned: fused Adam.

With --turns it measures in turns with other programs (turns.py). With --compile, torch.compile compiles forward and backward, which
needs a C++ compiler. Prints the median microseconds of a step and the last loss."""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional

from turns import take_turns


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 256), nn.Linear(256, 256)
        self.actor, self.critic = nn.Linear(256, 4), nn.Linear(256, 1)

    def forward(self, seen):
        x = functional.relu(self.second(functional.relu(self.first(seen))))
        return self.actor(x), self.critic(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--turns", choices=["yes"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = ActorCritic()
    try:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    except RuntimeError:  # an older PyTorch
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    seen, returns = 2 * torch.rand(options.batch, 8) - 1, torch.rand(options.batch)
    done = torch.randint(0, 4, (options.batch,))

    def loss_of(seen, done, returns):
        logits, value = model(seen)
        error = returns - value
        log_p = functional.log_softmax(logits, 1)
        actor = (error.detach() * functional.nll_loss(log_p, done, reduction="none")).mean()
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        return actor + 0.5 * error.square().mean() - 0.01 * entropy

    if options.compile:
        loss_of = torch.compile(loss_of)

    def measure():
        times = []
        for step in range(-options.steps // 10 - 1, options.steps):
            begin = time.perf_counter()
            loss = loss_of(seen, done, returns)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            last = loss.item()
            if step >= 0:
                times.append(time.perf_counter() - begin)
        times.sort()
        print(f"{1e6 * times[len(times) // 2]:.1f} us/step, loss {last:.4f}")

    take_turns(options.turns, measure)


main()
