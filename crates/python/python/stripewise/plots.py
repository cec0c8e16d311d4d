"""Pictures of the report by matplotlib, from the same numbers.

Each function draws into ``axes``, or into axes of its own, and returns them.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from . import _stripewise
from ._answers import Simulation
from ._command import name_command
from ._plans import Plan, Profile
from ._tables import REGION_BYTES, StrPath, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "bandwidth",
    "fits",
    "heat",
    "heat_data",
    "latency",
    "load",
    "load_data",
    "measured",
    "prices",
    "prices_data",
    "regions",
    "regions_data",
    "timeline",
    "timeline_data",
]

Direction = Literal["read", "write"]
Price = Literal["device", "link", "capacity"]
_COLOURS = {"hdd": "tab:blue", "ssd": "tab:orange"}
#: The policy with which the others are compared.
_BASELINE = "def"
#: Powers of two of the sizes that calibration measures.
_FITTED = range(12, 23)


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9, 3.5), layout="constrained")[1]


def heat_data(trace: Trace | StrPath) -> list[dict[str, Any]]:
    """Bytes by offset and time of the files with the most, as the report shows them: ``read`` and ``write`` are rows of cells, from offset 0 on."""
    name_command()
    path = trace.path if isinstance(trace, Trace) else os.fspath(trace)
    found: list[dict[str, Any]] = json.loads(_stripewise.heat(path, REGION_BYTES))
    for file in found:
        columns = file["columns"]
        for direction in ("read", "write"):
            cells = file[direction]
            file[direction] = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return found


def heat(trace: Trace | StrPath, direction: Direction = "read", *, file: int = 0, axes: Axes | None = None) -> Axes:
    """Where and when a file was accessed: bytes by offset and time, on a logarithmic scale. ``file`` counts from the one with the most bytes."""
    from matplotlib.colors import LogNorm

    found = heat_data(trace)[file]
    cells = found[direction]
    accessed = [cell for row in cells for cell in row if cell]
    if not accessed:
        raise ValueError(f"{found['path']}: no {direction}s in the trace")
    axes = _axes(axes)
    norm = LogNorm(vmin=min(accessed), vmax=max(max(accessed), min(accessed) + 1))
    extent = (found["start_s"], found["end_s"], 0, found["size_bytes"])
    image = axes.imshow(
        [[cell or float("nan") for cell in row] for row in cells],
        origin="lower", aspect="auto", extent=extent, norm=norm, cmap="viridis", interpolation="nearest",
    )  # fmt: skip
    axes.set(xlabel="time, s", ylabel="offset, bytes", title=f"{found['path']}: {direction}")
    axes.figure.colorbar(image, ax=axes, label="bytes")
    return axes


def bandwidth(simulation: Simulation, *, axes: Axes | None = None) -> Axes:
    """Simulated bandwidth of each plan, with what the model predicted and its range."""
    axes = _axes(axes)
    names = [run["name"] for run in simulation.runs]
    axes.barh(names, [run["outcome"]["mb_per_s"] for run in simulation.runs], label="simulated")
    predicted = [(position, run) for position, run in enumerate(simulation.runs) if run["predicted_mb_per_s"] is not None]
    if predicted:
        rates = [run["predicted_mb_per_s"] for _, run in predicted]
        spreads = [run["predicted_mb_per_s"] * run["predicted_spread"] for _, run in predicted]
        axes.errorbar(rates, [position for position, _ in predicted], xerr=spreads, fmt="k|", capsize=3, label="predicted")
    axes.invert_yaxis()
    axes.set(xlabel="MB/s", title=f"{simulation.workload}, simulated")
    axes.legend()
    return axes


def timeline_data(run: dict[str, Any]) -> list[tuple[float, float, float]]:
    """Begin, end and MB/s of each slice of a run, as the report shows them."""
    outcome = run["outcome"]
    slices, whole = outcome["timeline"], outcome["time_s"]
    found = []
    for number, part in enumerate(slices):
        end = min(slices[number + 1]["start_s"] if number + 1 < len(slices) else whole, whole)
        length = end - part["start_s"]
        # What was counted after the end of the last request has no length.
        if length > 0:
            found.append((part["start_s"], end, (part["read_bytes"] + part["write_bytes"]) / length / 1e6))
    return found


def timeline(simulation: Simulation, *, axes: Axes | None = None) -> Axes:
    """Bandwidth of each run over time."""
    axes = _axes(axes)
    for run in simulation.runs:
        slices = timeline_data(run)
        edges = [begin for begin, _, _ in slices] + [slices[-1][1]] if slices else []
        if slices:
            axes.stairs([rate for _, _, rate in slices], edges, label=run["name"])
    axes.set(xlabel="time, s", ylabel="MB/s", title=f"{simulation.workload}, simulated")
    axes.legend()
    return axes


def latency(simulation: Simulation, direction: Direction = "read", *, axes: Axes | None = None) -> Axes:
    """Percentiles of the time of a request, on a logarithmic axis."""
    axes = _axes(axes)
    runs = [run for run in simulation.runs if run["outcome"][direction]["requests"] > 0]
    for position, run in enumerate(runs):
        found = run["outcome"][direction]["latency"]
        times = [found[name] * 1e3 for name in ("p50_s", "p95_s", "p99_s", "max_s")]
        axes.plot(times, [position] * len(times), "o-")
    axes.set_yticks(range(len(runs)), [run["name"] for run in runs])
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="ms (p50, p95, p99, longest)", title=f"{simulation.workload}, simulated: {direction}")
    return axes


def _bytes_of(text: str) -> int:
    """Of a size as plans write it, such as ``64KiB``."""
    number, unit = text.rstrip("KMGTPEiB"), text.lstrip("0123456789.")
    return int(Decimal(number) * 1024 ** ("B KiB MiB GiB TiB PiB EiB".split().index(unit)))


def regions_data(plan: Plan, *, file: int = 0) -> list[dict[str, Any]]:
    """Where a planned file lies at first: ``server``, ``class``, ``offset``, ``bytes`` and ``stripe_bytes`` of each run of regions on each server.

    ``file`` counts from the one with the most bytes.
    """
    text = plan.to_dict()
    planned = sorted(text["files"], key=lambda found: -found["size_bytes"])[file]
    placement, size = planned["windows"][0]["placement"], planned["size_bytes"]
    region_bytes = _bytes_of(placement["region_size"])
    found, first = [], 0
    # What no run covers has the layout beyond them.
    for run in [*placement["runs"], {"regions": None, "layout": placement["beyond"]}]:
        offset = first * region_bytes
        if offset >= size:
            break
        end = size if run["regions"] is None else min(offset + run["regions"] * region_bytes, size)
        for number, stripe_bytes in placement["layouts"][run["layout"]]:
            server = text["servers"][number]
            found.append({"server": server["name"], "class": server["class"], "offset": offset, "bytes": end - offset, "stripe_bytes": stripe_bytes})
        first += run["regions"] or 0
    return found


def regions(plan: Plan, *, file: int = 0, axes: Axes | None = None) -> Axes:
    """Which servers hold which part of a planned file; the larger its stripes on a server, the darker. SSDs stand above disks."""
    axes = _axes(axes)
    text, found = plan.to_dict(), regions_data(plan, file=file)
    servers = sorted(text["servers"], key=lambda server: str(server["class"]))
    rows = {server["name"]: row for row, server in enumerate(servers)}
    for kind, colour in _COLOURS.items():
        spans = [span for span in found if span["class"] == kind]
        sizes = [span["stripe_bytes"] for span in spans]
        for span in spans:
            share = math.log(span["stripe_bytes"] / min(sizes)) / math.log(max(sizes) / min(sizes)) if max(sizes) > min(sizes) else 0.5
            axes.barh(rows[span["server"]], span["bytes"], left=span["offset"], height=0.9, color=colour, alpha=0.4 + 0.6 * share, linewidth=0)
    axes.set_yticks(range(len(servers)), [server["name"] for server in servers])
    path = sorted(text["files"], key=lambda planned: -planned["size_bytes"])[file]["path"]
    axes.set(xlabel="offset, bytes", title=f"{path}: {plan.policy}")
    return axes


def load_data(*plans: Plan) -> dict[str, dict[str, float]]:
    """Predicted seconds of work of each server, under ``def`` and each of the plans."""
    texts = [plan.to_dict() for plan in plans]
    loads = {text["policy"]: text["predicted"]["server_load_s"] for text in texts}
    if texts and _BASELINE not in loads:
        loads = {_BASELINE: texts[0]["default"]["server_load_s"], **loads}
    names = [server["name"] for server in texts[0]["servers"]] if texts else []
    return {policy: dict(zip(names, seconds)) for policy, seconds in loads.items()}


def load(*plans: Plan, axes: Axes | None = None) -> Axes:
    """For how long each server is predicted to work under ``def`` and each of the plans: even bars are a balanced load."""
    axes = _axes(axes)
    found = load_data(*plans)
    height = 0.8 / max(len(found), 1)
    names: list[str] = []
    for number, (policy, seconds) in enumerate(found.items()):
        names = list(seconds)
        axes.barh([row + number * height for row in range(len(names))], list(seconds.values()), height=height, label=policy)
    axes.set_yticks([row + height * (len(found) - 1) / 2 for row in range(len(names))], names)
    axes.invert_yaxis()
    axes.set(xlabel="predicted work, s", title="Load of the servers")
    axes.legend()
    return axes


def fits(profile: Profile, direction: Direction = "read", order: Literal["sequential", "random"] = "random", *, axes: Axes | None = None) -> Axes:
    """The time of one request over its size on each server, as calibration fitted it, with the spread of what it measured."""
    axes = _axes(axes)
    sizes = [1 << power for power in _FITTED]
    for server in profile.servers:
        line = server[f"{direction}_{order}"]
        times = [line["alpha_s"] + line["beta_s_per_byte"] * size for size in sizes]
        drawn = axes.plot(sizes, times, label=server["name"])[0]
        low, high = max(1 - line["spread"], 0), 1 + line["spread"]
        axes.fill_between(sizes, [time * low for time in times], [time * high for time in times], color=drawn.get_color(), alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="request, bytes", ylabel="time, s", title=f"{order} {direction}s")
    axes.legend()
    return axes


def prices_data(plan: Plan, of: Price = "device") -> dict[str, float]:
    """The price of each server's device or link, in seconds of the run for each second more of its work; or seconds that one GiB more on it would save."""
    text = plan.to_dict()
    if text.get("optimum") is None:
        raise ValueError(f"a plan by {plan.policy} has no prices; one by opt has")
    key = "room_s_per_gib" if of == "capacity" else of
    return {server["name"]: price[key] for server, price in zip(text["servers"], text["optimum"]["prices"])}


def prices(plan: Plan, of: Price = "device", *, axes: Axes | None = None) -> Axes:
    """Which servers set the bound of the plan: the dual price of each one's device, link or capacity."""
    found = prices_data(plan, of)
    axes = _axes(axes)
    kinds = {server["name"]: str(server["class"]) for server in plan.to_dict()["servers"]}
    axes.barh(list(found), list(found.values()), color=[_COLOURS[kinds[name]] for name in found])
    axes.invert_yaxis()
    unit = "s saved by each GiB more" if of == "capacity" else "s of the run for each s of its work"
    axes.set(xlabel=unit, title=f"Prices by {plan.policy}: {of}")
    return axes


def measured(results: StrPath, direction: Direction = "read", *, axes: Axes | None = None) -> Axes:
    """Bandwidth that ``stripewise demo`` measured (its ``results.json``) under each policy and size of requests, with what the model predicted."""
    found = json.loads(pathlib.Path(results).read_text(encoding="utf-8"))
    if "runs" not in found or "simulated" in found:
        raise _stripewise.StripewiseError(f"{os.fspath(results)} is not what `stripewise demo` writes")
    runs = sorted((run for run in found["runs"] if run["op"] == direction), key=lambda run: run["request_bytes"])
    axes = _axes(axes)
    axes.barh(range(len(runs)), [run["bandwidth_mb_s"] for run in runs], label="measured")
    predicted = [(row, run["predicted_mb_s"], run.get("predicted_spread", 0)) for row, run in enumerate(runs) if run.get("predicted_mb_s") is not None]
    if predicted:
        rows, rates, spreads = zip(*predicted)
        axes.errorbar(rates, rows, xerr=[rate * spread for rate, spread in zip(rates, spreads)], fmt="k|", capsize=3, label="predicted")
    axes.set_yticks(range(len(runs)), [f"{run['policy']}, {run['request_bytes'] // 1024} KiB" for run in runs])
    axes.invert_yaxis()
    axes.set(xlabel="MB/s", title=f"{direction}s, measured")
    axes.legend()
    return axes
