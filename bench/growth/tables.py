"""Curves as Markdown. Gets what fits.result_of() made."""
from comparison.tables import number

MARK = "**super-linear surprise**"


def size(x):
    """"64", "1.05 M"."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if x >= unit:
            scale = 1e3 if name == " k" else unit
            return f"{x / scale:.3g}{name}"
    return f"{x:,.0f}"


def seconds(value):
    return f"{number(value)} s" if value >= 1 else f"{number(1e3 * value)} ms"


def exponent_cell(result):
    if result["exponent"] is None:
        return "-"
    text = f"{result['exponent']:.2f}"
    if result["rounds"] and result["rounds"]["rounds"] > 1:
        text += f" ({result['rounds']['lowest']:.2f} to {result['rounds']['highest']:.2f})"
    return text


def verdict(result):
    words = [MARK] if result["surprise"] else []
    return "; ".join(words + (["noisy"] if result["noise"] else []))


def curve_line(result):
    expected = "-" if result["expected"] is None else f"{result['expected']:.2f}: {result['why']}"
    return [f"`{result['name']}`<br>{result['held']}", exponent_cell(result), expected, verdict(result)]


def point_line(result, point):
    spread = point["seconds"]
    return [f"`{result['name']}`", f"{size(point['x'])}", f"{seconds(spread['median'])} ({seconds(spread['lowest'])} to {seconds(spread['highest'])})",
            number(point["over_expected"]), number(point["memory_mb"])]


def table(header, lines):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)] + ["| " + " | ".join(line) + " |" for line in lines]


def markdown(scaling):
    machine = scaling["machine"]
    lines = [f"Measured {scaling['date']} on {machine['cores']} core(s) of {machine['processor']} ({', '.join(machine['features'])}), "
             f"{machine['threads']} thread(s), {scaling['rounds']} round(s){', steps of --quick' if scaling['quick'] else ''}: `{scaling['command']}`.", ""]
    lines += [f"- {note}" for note in machine["notes"]] + ([""] if machine["notes"] else [])
    lines += table(["curve", "exponent (range over rounds)", "expected", ""], [curve_line(result) for result in scaling["curves"]])
    lines += [""] + table(["curve", "size", "a step: median (lowest to highest)", "times as long as expected from the first", "peak MB"],
                          [point_line(result, point) for result in scaling["curves"] for point in result["points"]])
    remarks = [f"- `{result['name']}`: {'; '.join(result['noise'] + result['errors'])}" for result in scaling["curves"]
               if result["noise"] or result["errors"]]
    if remarks:
        lines += ["", "Noisy curves, and points that did not run:", ""] + remarks
    return "\n".join(lines) + "\n"
