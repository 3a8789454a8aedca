#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many bytes the kernels of a step read and write on the first device, from the step's plan (--plan plan.json).

usage: kernel_bytes.py PLAN.json [--without WORD]     WORD: skips kernels with this word in their names, as in "cuDNN convolution"
"""
import argparse
import json


def bytes_of(device, without):
    total = 0
    for instruction in device["instructions"]:
        left_out = instruction["do"] == "run" and without and without in instruction["kernel"]
        if instruction["do"] in ("run", "fold") and not left_out:
            total += sum(operand["bytes"] for operand in instruction.get("inputs", []) + instruction.get("outputs", []))
        elif instruction["do"] == "copy":
            total += 2 * instruction["bytes"]
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--without", default="", metavar="WORD")
    options = parser.parse_args()
    with open(options.plan) as file:
        plan = json.load(file)
    print(bytes_of(plan["processes"][0]["devices"][0], options.without))


if __name__ == "__main__":
    main()
