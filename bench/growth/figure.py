"""The figure: a panel per curve, both axes logarithmic, measured medians with their range over rounds beside what was expected.

SVG without script or fonts of its own. The vertical axis spans at least a decade, so that no small difference looks like growth."""
import math
from xml.sax.saxutils import escape

from . import tables

WIDTH, PANEL_WIDTH, PANEL_HEIGHT, HEAD = 960, 480, 330, 46
LEFT, RIGHT, TOP, BOTTOM = 72, 24, 56, 52
INK, GRID, MEASURED, EXPECTED, ALARM = "#1a1a1a", "#d4d4d4", "#0b6e99", "#6b5b00", "#b00020"


class Axis:
    """Logarithms of [low, high] on [begin, end]."""

    def __init__(self, low, high, begin, end):
        self.low, self.high, self.begin, self.end = math.log10(low), math.log10(high), begin, end

    def __call__(self, value):
        return self.begin + (self.end - self.begin) * (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self):
        """1, 2 and 5 of each decade, or the decades alone where there would be many."""
        steps = (1, 2, 5) if self.high - self.low <= 2 else (1,)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                value = step * 10.0 ** decade
                if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9:
                    yield value


def text(x, y, words, size=13, anchor="start", colour=INK, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{more}>{escape(words)}</text>'


def vertical_range(points, expectations):
    ends = [point["seconds"][end] for point in points for end in ("lowest", "highest")] + expectations
    low, high = min(ends) / 1.3, max(ends) * 1.3
    lack = 10 / (high / low)
    return (low / math.sqrt(lack), high * math.sqrt(lack)) if lack > 1 else (low, high)


def duration(value):
    return f"{value:g} s" if value >= 1 else f"{1e3 * value:g} ms"


def panel(result, left, top):
    points = result["points"]
    colour = ALARM if result["surprise"] else INK
    parts = [text(left + LEFT, top + 20, result["title"], 16, more=' font-weight="bold"')]
    if result["exponent"] is None:
        return parts + [text(left + LEFT, top + 42, "no exponent: fewer than two sizes ran", colour=ALARM)]
    parts.append(text(left + LEFT, top + 40, f"exponent {tables.exponent_cell(result)}, expected {result['expected']:.2f}"
                      f"{' - super-linear surprise' if result['surprise'] else ''}{' - noisy' if result['noise'] else ''}", colour=colour))
    first = points[0]
    expectations = [first["seconds"]["median"] * point["expected"] / first["expected"] for point in points]
    low, high = min(point["x"] for point in points), max(point["x"] for point in points)
    margin = (high / low) ** 0.05
    x = Axis(low / margin, high * margin, left + LEFT, left + PANEL_WIDTH - RIGHT)
    bottom = top + PANEL_HEIGHT - BOTTOM
    y = Axis(*vertical_range(points, expectations), bottom, top + TOP)
    for tick in y.ticks():
        parts.append(f'<line x1="{x.begin}" x2="{x.end}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{GRID}"/>')
        parts.append(text(x.begin - 6, y(tick) + 4, duration(tick), 12, "end"))
    for point in points:
        parts.append(f'<line x1="{x(point["x"]):.1f}" x2="{x(point["x"]):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{INK}"/>')
        parts.append(text(x(point["x"]), bottom + 19, tables.size(point["x"]), 12, "middle"))
    parts.append(f'<path d="M{x.begin},{top + TOP} V{bottom} H{x.end}" fill="none" stroke="{INK}"/>')
    parts.append(text((x.begin + x.end) / 2, bottom + 38, result["x_label"], 13, "middle"))
    parts.append(text(0, 0, "time of a step", 13, "middle", more=f' transform="translate({left + 16},{(top + TOP + bottom) / 2:.1f}) rotate(-90)"'))

    def line(values, stroke, dashes):
        path = " ".join(f"{x(point['x']):.1f},{y(value):.1f}" for point, value in zip(points, values))
        return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="2"{dashes}/>'
    parts.append(line(expectations, EXPECTED, ' stroke-dasharray="6,4"'))
    parts.append(line([point["seconds"]["median"] for point in points], MEASURED, ""))
    for point in points:
        at, spread = x(point["x"]), point["seconds"]
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(spread["lowest"]):.1f}" y2="{y(spread["highest"]):.1f}" stroke="{MEASURED}" stroke-width="2"/>'
                     f'<circle cx="{at:.1f}" cy="{y(spread["median"]):.1f}" r="4.5" fill="{MEASURED}"/>')
    return parts


def figure(scaling):
    curves = scaling["curves"]
    height = HEAD + PANEL_HEIGHT * ((len(curves) + 1) // 2) + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<line x1="72" x2="100" y1="24" y2="24" stroke="{MEASURED}" stroke-width="2"/><circle cx="86" cy="24" r="4.5" fill="{MEASURED}"/>',
             text(108, 28, "measured: median, lowest to highest"),
             f'<line x1="380" x2="408" y1="24" y2="24" stroke="{EXPECTED}" stroke-width="2" stroke-dasharray="6,4"/>',
             text(416, 28, "expected, from the first point on")]
    for i, result in enumerate(curves):
        parts += panel(result, PANEL_WIDTH * (i % 2), HEAD + PANEL_HEIGHT * (i // 2))
    return "\n".join(parts) + "\n</svg>\n"
