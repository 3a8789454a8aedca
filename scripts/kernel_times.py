#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a table of the kernels of one step, the slowest first: time, share of the step, launches, bytes and bytes/s of memory.

usage: kernel_times.py FILE.csv [--rows N]     FILE.csv: from `ncu --csv --metrics gpu__time_duration.sum,dram__bytes.sum PROGRAM`

PROGRAM runs at least two equal steps that are not captured. The last step is the longest row of launches that comes twice at
the end, one right after the other. Without such a row all launches are counted, and the first line says so."""
import argparse
import csv
import sys

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes.sum"
UNITS = {"s": 1, "second": 1, "ms": 1e-3, "msecond": 1e-3, "us": 1e-6, "usecond": 1e-6, "ns": 1e-9, "nsecond": 1e-9,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


def scaled(value, unit):
    if unit not in UNITS:
        sys.exit(f"kernel_times.py: ncu wrote the unit \"{unit}\", which is neither one of time nor one of bytes")
    return float(value.replace(",", "")) * UNITS[unit]


def launches(lines):
    """(kernel, seconds, bytes) of each launch, in order. ncu writes a line per metric, or with --page raw a line per launch."""
    lines = [line for line in lines if line.startswith('"')]  # others are ncu's messages and the program's output
    found, units = {}, None
    for row in csv.DictReader(lines):
        if "Metric Name" in row:
            values = {row["Metric Name"]: scaled(row["Metric Value"], row["Metric Unit"])} if row["Metric Name"] in (TIME, BYTES) else {}
        elif units is None:
            units = row
            continue
        else:
            values = {name: scaled(row[name], units[name]) for name in (TIME, BYTES)}
        found.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"]}).update(values)
    try:
        return [(launch["kernel"], launch[TIME], launch[BYTES]) for _, launch in sorted(found.items())]
    except KeyError as missing:
        sys.exit(f"kernel_times.py: a launch has no {missing}: run ncu with --csv --metrics {TIME},{BYTES}")


def last_step(of):
    names = [kernel for kernel, _, _ in of]
    for count in range(len(names) // 2, 0, -1):
        if names[-count:] == names[-2 * count:-count]:
            return of[-count:], "of one step"
    return of, "of the whole program: no two equal steps are at its end"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=60)
    options = parser.parse_args()
    with open(options.file, newline="") as file:
        every = launches(file)
    if not every:
        sys.exit(f"kernel_times.py: {options.file} has no launch: it must be ncu's output as csv, of a program that used a GPU")
    step, of = last_step(every)
    kernels = {}
    for kernel, seconds, size in step:
        kernels.setdefault(kernel.removeprefix("void "), []).append((seconds, size))
    whole = sum(seconds for _, seconds, _ in step)
    print(f"{1e3 * whole:.3f} ms in {len(step)} launches {of}, {sum(size for _, _, size in step) / 1e9:.3f} GB")
    print(f"{'ms':>9} {'%':>5} {'launches':>8} {'GB':>8} {'GB/s':>6}  kernel")
    ordered = sorted(kernels.items(), key=lambda item: -sum(seconds for seconds, _ in item[1]))
    for kernel, runs in ordered[:options.rows]:
        seconds, size = (sum(part) for part in zip(*runs))
        speed = size / seconds / 1e9 if seconds else 0
        print(f"{1e3 * seconds:9.3f} {100 * seconds / whole:5.1f} {len(runs):8} {size / 1e9:8.3f} {speed:6.0f}  {kernel[:120]}")


if __name__ == "__main__":
    main()
