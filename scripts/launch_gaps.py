#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the share of the time in which a GPU was idle between its kernels and copies.

usage: launch_gaps.py FILE.csv [--last PART]     FILE.csv: from `nsys stats --report cuda_gpu_trace --format csv`
Uses only the last half of the time (PART of it), because the first steps prepare kernels.
"""
import argparse
import csv
import sys


def spans(path):
    """(begin, end) in nanoseconds of every kernel and copy, ordered by begin."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or "Start (ns)" not in rows[0] or "Duration (ns)" not in rows[0]:
        sys.exit(f"{path} has no columns Start (ns) and Duration (ns): it must be nsys's cuda_gpu_trace as csv, of a program that used a GPU")
    return sorted((int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"])) for row in rows)


def gaps(work, last):
    """(idle, all) nanoseconds and the number of gaps, in the last part of the time."""
    begin, end = work[0][0], max(until for _, until in work)
    at = first = end - int((end - begin) * last)
    idle = count = 0
    for since, until in work:
        if until <= first:
            continue
        if since > at:
            idle, count = idle + since - at, count + 1
        at = max(at, until)
    return idle, end - first, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--last", type=float, default=0.5)
    arguments = parser.parse_args()
    idle, whole, count = gaps(spans(arguments.file), arguments.last)
    print(f"{100 * idle / whole:.1f} % of {whole / 1e6:.1f} ms, {count} gaps")


if __name__ == "__main__":
    main()
