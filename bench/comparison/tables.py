"""A comparison as Markdown and as a figure (SVG without script or fonts of its own). Gets what figures.result_of() made."""
import math
from xml.sax.saxutils import escape


def number(value):
    """Three digits that count, thousands apart."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def ratio_cell(ratio, aim, met, at_least=None):
    """"1.10 (1.08 to 1.29), aim 1 MISSED"; "> 12.3" of a side that was stopped."""
    if ratio is None:
        return f"> {number(at_least)}" if at_least else "-"
    text = number(ratio["median"])
    if ratio["rounds"] > 1:
        text += f" ({number(ratio['lowest'])} to {number(ratio['highest'])})"
    if aim is not None:
        text += f", aim {aim:g}" + ("" if met else " **missed**")
    return text


def limit_cell(result):
    ratio = result["ratios"].get("limit")
    return "-" if ratio is None else ratio_cell(ratio, result["aims"].get("limit"), result["met"].get("limit")) + ": " + result["limit_is"]


def own_cell(result):
    """"0.19 s, aim at most 0.4"."""
    ours = result["values"].get("ours")
    if not ours:
        return "-"
    per_second = "" if result["unit"] in ("s", "") or "/s" in result["unit"] else "/s"
    most = result.get("most")
    aim = "" if most is None else f", aim at most {most:g}" + ("" if result["met"].get("ours") else " **missed**")
    return f"{number(ours['median'])} {result['unit']}{per_second}{aim}"


def row_line(result):
    def cell(side):
        return ratio_cell(result["ratios"].get(side), result["aims"].get(side), result["met"].get(side), result["ratios_at_least"].get(side))
    memory = " / ".join(number(result["memory_mb"].get(side)) for side in ("ours", "stock", "tuned"))
    first = f"`{result['name']}`<br>{result['title']}" if result["title"] else f"`{result['name']}`"
    return [first, own_cell(result), cell("stock"), cell("tuned"), limit_cell(result), memory, "noisy" if result["noise"] else ""]


HEADER = ["row", "ours", "x PyTorch as it comes", "x PyTorch tuned", "of the limit beside it", "peak MB: ours / stock / tuned", ""]


def origin(comparison):
    """Where, when, with which flags and against which versions."""
    machine = comparison["machine"]
    versions = comparison.get("versions", {})
    carried = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "torch")
    text = (f"Measured {comparison['date']} on {machine['cores']} core(s) of {machine['processor']} ({', '.join(machine['features'])}), "
            f"{machine['threads']} thread(s), {comparison['rounds']} round(s){', sizes of --quick' if comparison['quick'] else ''}; "
            f"PyTorch {comparison['torch']}{f' ({carried})' if carried else ''}; Tenon {comparison.get('tenon', 'unknown')}.")
    return text + (f" Flags: {' '.join(machine['flags'])}." if machine.get("flags") else "")


def table_lines(results, marks=None):
    """marks: what to add to the last cell of a row, by its name."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    for result in results:
        cells = row_line(result)
        cells[-1] = ", ".join(word for word in (cells[-1], (marks or {}).get(result["name"], "")) if word)
        lines.append("| " + " | ".join(cells) + " |")
    remarks = [f"- `{result['name']}`: {'; '.join(result['noise'] + result['errors'])}" for result in results
               if result["noise"] or result["errors"]]
    if remarks:
        lines += ["", "Noisy rows, and sides that did not run:", ""] + remarks
    return lines


def markdown(comparison):
    lines = [origin(comparison), ""]
    lines += [f"- {note}" for note in comparison["machine"]["notes"] + comparison["notes"]]
    lines += [""] + table_lines(comparison["rows"])
    return "\n".join(lines) + "\n"


WIDTH, LEFT, RIGHT, STEP, TOP = 760, 180, 40, 34, 56
COLOURS = {"stock": "#0b6e99", "tuned": "#c2410c"}


def figure(comparison):
    """Ratios to the peer on a logarithmic scale: a dot per median, a line from lowest to highest, a tick where the aim is."""
    results = [result for result in comparison["rows"] if any(result["ratios"].get(side) for side in COLOURS)]
    ends = [end for result in results for side in COLOURS if result["ratios"].get(side)
            for end in (result["ratios"][side]["lowest"], result["ratios"][side]["highest"])]
    low, high = math.floor(math.log2(min(ends + [0.5]))), math.ceil(math.log2(max(ends + [2])))
    bottom = TOP + STEP * len(results)

    def x(ratio):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(ratio) - low) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{bottom + 30}" fill="white"/>',
             f'<text x="10" y="18">times the speed of PyTorch {escape(str(comparison["torch"]))}: median, lowest to highest, aim</text>']
    for i, side in enumerate(COLOURS):
        parts.append(f'<circle cx="{LEFT + 6 + 140 * i}" cy="34" r="4" fill="{COLOURS[side]}"/><text x="{LEFT + 16 + 140 * i}" y="38">'
                     f'{"as it comes" if side == "stock" else "tuned"}</text>')
    for power in range(low, high + 1):
        parts.append(f'<line x1="{x(2 ** power):.1f}" x2="{x(2 ** power):.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="{"#888" if power == 0 else "#ddd"}"/>'
                     f'<text x="{x(2 ** power):.1f}" y="{bottom + 16}" text-anchor="middle">{2.0 ** power:g}</text>')
    for i, result in enumerate(results):
        y = TOP + STEP * i + 8
        parts.append(f'<text x="10" y="{y + 8}">{escape(result["name"])}{" (noisy)" if result["noise"] else ""}</text>')
        for j, side in enumerate(COLOURS):
            ratio = result["ratios"].get(side)
            if ratio is None:
                continue
            level = y + 10 * j
            aim = result["aims"].get(side)
            parts.append(f'<line x1="{x(ratio["lowest"]):.1f}" x2="{x(ratio["highest"]):.1f}" y1="{level}" y2="{level}" stroke="{COLOURS[side]}" stroke-width="2"/>'
                         f'<circle cx="{x(ratio["median"]):.1f}" cy="{level}" r="4" fill="{COLOURS[side]}"/>')
            if aim and low <= math.log2(aim) <= high:
                parts.append(f'<line x1="{x(aim):.1f}" x2="{x(aim):.1f}" y1="{level - 5}" y2="{level + 5}" stroke="{COLOURS[side]}" stroke-dasharray="2,2"/>')
    return "\n".join(parts) + "\n</svg>\n"
