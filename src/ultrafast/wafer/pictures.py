"""Pictures of a plan: SVG for a report's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ultrafast.report.plots import Line, lines
from ultrafast.report.svg import GRID, INK, SOFT, Inks, drawing, to_svg
from ultrafast.wafer.outlook import Wall
from ultrafast.wafer.placement import Placement, Region

_MOST_WAFERS = 6  # that are drawn: more are alike
_WIDTH = 8.0


def wafers(placement: Placement) -> str:
    """Where the layers lie: each wafer with its regions, numbered along the token's way, which is drawn in."""
    shown = min(placement.wafers, _MOST_WAFERS)
    columns = min(shown, 3)
    rows = math.ceil(shown / columns)
    side = _WIDTH / columns if columns > 1 else 5.0
    with drawing():
        figure = Figure(figsize=(_WIDTH, side * rows + 0.3), layout="constrained")
        figure.patch.set_alpha(0)
        inks = Inks()
        colours = {role: inks.of(role)[0] for role in ("layer", "embedding", "head")}
        for number in range(shown):
            axes = figure.add_subplot(rows, columns, number + 1)
            here = [region for region in placement.regions if region.wafer == number]
            _wafer(axes, placement, here, colours, f"wafer {number + 1} of {placement.wafers}")
        handles = [Patch(facecolor=colour, alpha=0.45) for colour in colours.values()]
        figure.legend(handles, list(colours), loc="outside lower center", ncols=3, frameon=False, labelcolor=INK)
        return to_svg(figure, f"{placement.shape.name} on {placement.wafers} wafers, layer by layer")


def _wafer(axes: Axes, placement: Placement, here: Sequence[Region], colours: Mapping[str, str], title: str) -> None:
    width, height = placement.device["grid_width"], placement.device["grid_height"]
    axes.add_patch(Rectangle((0, 0), width, height, fill=False, edgecolor=SOFT, linewidth=1.2))
    for region in here:
        box = (region.x, region.y), region.width, region.height
        axes.add_patch(Rectangle(*box, facecolor=colours[region.role], alpha=0.45, edgecolor=GRID, linewidth=0.6))
        name = str(region.layer + 1) if region.role == "layer" else region.role[0].upper()
        size = min(9.0, 60 / math.sqrt(len(here)))
        centre = (region.x + region.width / 2, region.y + region.height / 2)
        axes.text(*centre, name, ha="center", va="center", color=INK, fontsize=size)
    way = [(region.x + region.width / 2, region.y + region.height / 2) for region in here]
    axes.plot(*zip(*way, strict=True), color=SOFT, linewidth=0.8, alpha=0.6, zorder=1)
    axes.set(xlim=(-8, width + 8), ylim=(height + 8, -8), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, color=INK, fontsize=8.5)
    axes.patch.set_alpha(0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def breakdown(parts: Mapping[str, Mapping[str, float]]) -> str:
    """What a token's time goes to, in microseconds: a bar for each name, a colour for each part."""
    names = list(dict.fromkeys(part for bar in parts.values() for part in bar))
    with drawing():
        figure = Figure(figsize=(_WIDTH, 1.1 + 0.4 * len(parts)), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        inks = Inks()
        colours = {name: inks.of(name) for name in names}
        for row, bar in enumerate(parts.values()):
            start = 0.0
            for name, seconds in bar.items():
                colour, nth = colours[name]
                axes.barh(row, seconds * 1e6, left=start, height=0.6, color=colour, alpha=1 - 0.45 * nth, linewidth=0)
                start += seconds * 1e6
        axes.set_yticks(range(len(parts)), list(parts))
        axes.invert_yaxis()
        axes.set_xlabel("microseconds a token of one user", color=INK)
        axes.tick_params(colors=INK)
        axes.grid(visible=True, axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.patch.set_alpha(0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
        handles = [Patch(facecolor=colour, alpha=1 - 0.45 * nth) for colour, nth in colours.values()]
        figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, labelcolor=INK)
        return to_svg(figure, f"Time of a token by part: {', '.join(names)}")


def memory_wall(walls: Sequence[Wall]) -> str:
    """Speed against size: a curve for each amount of SRAM, which falls where the model outgrows it."""
    curves = [
        Line(
            "SRAM as it is" if wall.times == 1 else f"{wall.times:g} times the SRAM",
            [size / 1e9 for size in wall.parameters],
            wall.speeds,
        )
        for wall in walls
    ]
    return lines(curves, x="billions of parameters", y="tokens/s of one user", log_x=True, log_y=True)


def throughput(loads: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Tokens a second of one user against those of all, a curve for each name."""
    curves = [Line(name, totals, speeds) for name, (totals, speeds) in loads.items()]
    return lines(curves, x="tokens/s of all users", y="tokens/s of each user", log_x=True, log_y=True)
