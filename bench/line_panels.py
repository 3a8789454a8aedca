# SPDX-License-Identifier: Apache-2.0
"""Plots of lines side by side, as SVG: what several runs, of a few kinds, came to."""
from dataclasses import dataclass
from typing import Callable

WIDTH, HEIGHT = 420, 290  # of a panel's plot


@dataclass
class Panel:
    """One plot. `runs`: (kind, {x: y}) for each line."""
    title: str
    runs: list
    x_text: Callable  # of the last x
    y_text: Callable

    def __post_init__(self):
        self.last = max((x for _, values in self.runs for x in values), default=1) or 1
        every = [y for _, values in self.runs for y in values.values()]
        self.low, self.high = min(every, default=0), max(every, default=1)

    def at(self, left, x, y):
        return left + WIDTH * x / self.last, 50 + HEIGHT - HEIGHT * (y - self.low) / (self.high - self.low or 1)

    def svg(self, left, colours):
        parts = [f'<text x="{left}" y="30" font-size="14">{self.title}</text>']
        for i in range(5):
            tick = self.low + (self.high - self.low) * i / 4
            x, y = self.at(left, 0, tick)
            parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{self.y_text(tick)}</text>'
                         f'<line x1="{x:.1f}" x2="{x + WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + WIDTH}" y="358" text-anchor="end">{self.x_text(self.last)}</text>')
        for kind, values in self.runs:
            points = " ".join("{:.1f},{:.1f}".format(*self.at(left, x, y)) for x, y in sorted(values.items()))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[kind]}" stroke-width="1.5"/>')
        return "\n".join(parts)


def drawing(panels, colours):
    """`colours`: {kind: colour}, which is the legend."""
    legend = "".join(f'<line x1="{70 + 200 * i}" x2="{95 + 200 * i}" y1="385" y2="385" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{101 + 200 * i}" y="389">{kind}</text>' for i, (kind, colour) in enumerate(colours.items()))
    body = "\n".join(panel.svg(60 + 520 * i, colours) for i, panel in enumerate(panels))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{520 * len(panels)}" height="405" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n{legend}</svg>\n')
