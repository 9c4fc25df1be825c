"""Draws dashboards from the results of their queries, so that a person can judge layout, units and colours without a Grafana.

check_dashboards.py --draw calls all_boards(), which writes grafana/pictures. `substituted` fills in the variables of a query, and
`is_here` says whether this machine has what a panel needs.
"""

import hashlib
import json
import math
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from observe import HERE

COLUMNS, ROW_INCHES, WIDTH_INCHES = 24, 0.36, 16
NAME_LETTERS_MAX = 12
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A900", "#8A8A8A"]
INK, FAINT, LINE = "#1f2430", "#6b7280", "#e5e7eb"
SI = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
IEC = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"), (1, ""))


def scaled(value, steps, unit):
    for size, prefix in steps:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def shown(value, unit, decimals=None):
    """As Grafana shows a value of this unit."""
    if value is None or math.isnan(value):
        return "no data"
    if unit in ("bytes", "binBps"):
        return scaled(value, IEC, "B" if unit == "bytes" else "B/s")
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "cps":
        return scaled(value, SI, "/s")
    if unit == "s":
        steps = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
        if value >= 31536000:
            return "a year or more"
        size, name = next((step for step in steps if abs(value) >= step[0]), (1, "s"))
        return f"{value / size:.3g} {name}"
    if unit == "d":
        return f"{value:.3g} days"
    if decimals == 0 and abs(value) < 1000:
        return f"{value:.0f}"
    return scaled(value, SI, "")


def label(target, metric):
    return re.sub(r"\{\{(\w+)\}\}", lambda match: metric.get(match[1], ""), target["legendFormat"]) or "value"


def lines(observe, panel, start, end, substituted):
    found = []
    for target in panel["targets"]:
        step = max(1, int((end - start) / 120))
        for series in observe.ask("query_range", query=substituted(target["expr"]), start=start, end=end, step=step):
            points = [(float(at) - start, float(value)) for at, value in series["values"]]
            found.append((label(target, series["metric"]), points))
    return found


def hides_zeros(panel):
    """Whether the legend leaves out lines that stay at zero."""
    return any(override["matcher"]["id"] == "byValue" for override in panel["fieldConfig"].get("overrides", []))


def colours(panel, names):
    fixed = {}
    for override in panel["fieldConfig"].get("overrides", []):
        for setting in override["properties"]:
            if setting["id"] == "color":
                fixed[override["matcher"]["options"]] = setting["value"]["fixedColor"]
    return [fixed.get(name, PALETTE[number % len(PALETTE)]) for number, name in enumerate(names)]


def frame(axes, title):
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK, pad=5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=FAINT, labelsize=7, length=0)


def note(axes, text):
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=8, color=FAINT, transform=axes.transAxes, wrap=True)
    axes.set_xticks([])
    axes.set_yticks([])


def ticks(limits, unit, decimals):
    """Round numbers, of the unit that they are shown in."""
    size = 1.0
    if unit in ("bytes", "binBps"):
        size = next((size for size, _ in IEC if limits[1] >= size), 1)
    return [size * tick for tick in MaxNLocator(4, integer=decimals == 0).tick_values(limits[0] / size, limits[1] / size) if tick * size <= limits[1]]


def graph(axes, panel, found, seconds):
    defaults = panel["fieldConfig"]["defaults"]
    unit, decimals = defaults["unit"], defaults.get("decimals")
    # Series with values come first, because the legend has room for few.
    found = sorted(found, key=lambda one: -max((value for _, value in one[1] if not math.isnan(value)), default=0))
    names = [name for name, _ in found]
    paint = colours(panel, names)
    if defaults["custom"].get("stacking", {}).get("mode") == "normal" and len({len(points) for _, points in found}) == 1:
        times = [at for at, _ in found[0][1]]
        axes.stackplot(times, [[value for _, value in points] for _, points in found], colors=paint, labels=names, alpha=0.75)
    else:
        for (name, points), colour in zip(found, paint):
            axes.plot(*zip(*points), color=colour, linewidth=1.3, label=name)
            axes.fill_between(*zip(*points), color=colour, alpha=0.06, linewidth=0)
    for step in defaults.get("thresholds", {}).get("steps", []):
        if step.get("value") and defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
            axes.axhline(step["value"], color=step["color"], linestyle="--", linewidth=1)
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"], top=defaults.get("max") or None)
        if not any(value > 0 for _, points in found for _, value in points) and not defaults.get("max"):
            axes.set_ylim(0, 1)
    axes.set_xlim(0, seconds)
    axes.yaxis.set_major_locator(FixedLocator(ticks(axes.get_ylim(), unit, decimals)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit, decimals)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    named = list(zip(*axes.get_legend_handles_labels()))
    if hides_zeros(panel):
        zero = {name for name, points in found if not any(value for _, value in points)}
        named = [(handle, text) for handle, text in named if text not in zero]
    handles, texts = [handle for handle, _ in named], [text for _, text in named]
    more = [f"and {len(texts) - 6} more"] if len(texts) > 6 else []
    axes.legend(handles[:6], texts[: 6 - len(more)] + more if more else texts, loc="upper center", bbox_to_anchor=(0.5, -0.14),
                ncols=3, fontsize=6.5, frameon=False, labelcolor=INK, handlelength=1.2, columnspacing=1)


def number(axes, panel, found, seconds):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    points = found[0][1] if found else []
    value = points[-1][1] if points else None
    colour = PALETTE[0]
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if value is not None and (step.get("value") is None or value >= step["value"]):
            colour = step["color"]
    if points:
        axes.fill_between(*zip(*points), color=colour, alpha=0.12, linewidth=0)
        axes.set_ylim(0, 2.6 * max(max(value for _, value in points if not math.isnan(value)), 1e-9))
    axes.set_xlim(0, seconds)
    axes.text(0.5, 0.6, shown(value, unit), ha="center", va="center", fontsize=20, color=colour, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def bars(axes, panel, found):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    ranked = sorted(((name, points[-1][1]) for name, points in found), key=lambda one: one[1])[-8:]
    axes.barh([name for name, _ in ranked], [value for _, value in ranked], color=PALETTE[0], height=0.55)
    if max((len(name) for name, _ in ranked), default=0) > NAME_LETTERS_MAX:
        # Beside the bars it would cover the panel on the left.
        axes.set_yticks([])
        for place, (name, _) in enumerate(ranked):
            axes.text(0, place + 0.32, name, va="bottom", fontsize=7, color=FAINT)
    most = max([value for _, value in ranked], default=1) or 1
    for place, (_, value) in enumerate(ranked):
        axes.text(value + most * 0.02, place, shown(value, unit), va="center", fontsize=7, color=INK)
    axes.set_xlim(0, most * 1.25)
    axes.set_ylim(-0.7, max(len(ranked), 4) - 0.3)
    axes.set_xticks([])


def board(observe, document, path, start, end, substituted, is_here):
    panels = document["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 2
    figure = plt.figure(figsize=(WIDTH_INCHES, rows * ROW_INCHES), facecolor="white")
    height = figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.3 / height, document["title"], fontsize=14, fontweight="bold", color=INK, va="center")
    figure.text(0.012, 1 - 0.56 / height, document["description"], fontsize=9, color=FAINT, va="center")
    for panel in panels:
        place = panel["gridPos"]
        top = 1 - (place["y"] + 2) / rows
        if panel["type"] == "row":
            figure.text(0.012, top - 0.6 / rows, panel["title"], fontsize=11, color=INK, va="center")
            continue
        is_graph = panel["type"] == "timeseries"
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        margin_left, margin_bottom = (0.040 if panel["type"] != "stat" else 0.014), (2.2 if is_graph else 0.5)
        axes = figure.add_axes([left + margin_left, top - (place["h"] - margin_bottom) / rows, width - margin_left - 0.014,
                                (place["h"] - margin_bottom - 1.1) / rows])
        frame(axes, panel["title"])
        if not is_here(panel):
            note(axes, panel["description"].rpartition("Needs: ")[2].join(["needs ", ""]).rstrip(".") + ", which was not there")
            continue
        found = lines(observe, panel, start, end, substituted)
        if is_graph and found:
            graph(axes, panel, found, end - start)
        elif panel["type"] == "stat":
            number(axes, panel, found, end - start)
        elif found:
            bars(axes, panel, found)
        else:
            note(axes, "no data")
    figure.savefig(path, dpi=75)
    plt.close(figure)


def all_boards(observe, start, end, substituted, is_here):
    folder = HERE / "grafana/pictures"
    folder.mkdir(exist_ok=True)
    drawn = {}
    for source in sorted((HERE / "grafana/json").glob("*.json")):
        board(observe, json.loads(source.read_text()), folder / f"{source.stem}.png", start, end, substituted, is_here)
        drawn[source.stem] = hashlib.sha256(source.read_bytes()).hexdigest()
        print(f"drew {source.stem}")
    (folder / "drawn.json").write_text(json.dumps(drawn, indent=1) + "\n")
