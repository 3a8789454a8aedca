# SPDX-License-Identifier: Apache-2.0
"""Line plots side by side, as SVG, for runs of several kinds."""
import math
from dataclasses import dataclass
from typing import Callable

WIDTH, HEIGHT = 420, 290  # of a panel's plot


def ticks(low, high):
    """About five multiples of 1, 2 or 5 times a power of ten. The first and the last enclose the range."""
    span = high - low or 1
    power = 10 ** math.floor(math.log10(span / 4))
    step = next(power * each for each in (1, 2, 5, 10) if power * each * 4.5 >= span)
    return [step * i for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


@dataclass
class Panel:
    """One plot. `runs`: (kind, {x: y}) for each line."""
    title: str
    runs: list
    x_text: Callable
    y_text: Callable

    def __post_init__(self):
        self.last = max((x for _, values in self.runs for x in values), default=1) or 1
        every = [y for _, values in self.runs for y in values.values()]
        self.ticks = ticks(min(every, default=0), max(every, default=1))
        self.low, self.high = self.ticks[0], self.ticks[-1]

    def at(self, left, x, y):
        return left + WIDTH * x / self.last, 50 + HEIGHT - HEIGHT * (y - self.low) / (self.high - self.low or 1)

    def svg(self, left, colours):
        parts = [f'<text x="{left}" y="30" font-size="14">{self.title}</text>']
        for tick in self.ticks:
            x, y = self.at(left, 0, tick)
            parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{self.y_text(tick)}</text>'
                         f'<line x1="{x:.1f}" x2="{x + WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        for tick in (each for each in ticks(0, self.last) if each <= self.last):
            parts.append(f'<text x="{self.at(left, tick, 0)[0]:.1f}" y="358" text-anchor="middle">{self.x_text(tick)}</text>')
        for kind, values in self.runs:
            points = " ".join("{:.1f},{:.1f}".format(*self.at(left, x, y)) for x, y in sorted(values.items()))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[kind]}" stroke-width="1.5"/>')
        return "\n".join(parts)


def drawing(panels, colours):
    """`colours`: {kind: colour}; they also make the legend."""
    legend = "".join(f'<line x1="{70 + 200 * i}" x2="{95 + 200 * i}" y1="385" y2="385" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{101 + 200 * i}" y="389">{kind}</text>' for i, (kind, colour) in enumerate(colours.items()))
    body = "\n".join(panel.svg(60 + 520 * i, colours) for i, panel in enumerate(panels))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{520 * len(panels)}" height="405" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n{legend}</svg>\n')
