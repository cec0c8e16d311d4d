"""Simulations, advice and reports as objects that notebooks show."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Sequence
from html import escape
from typing import Any, Union

from . import _stripewise
from ._command import name_command
from ._plans import Plan, Profile, names_of, paths_of
from ._tables import Trace

StrPath = Union[str, "os.PathLike[str]"]


class Simulation:
    """A workload on modelled servers under plans and policies; nothing of it was measured."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    @classmethod
    def load(cls, path: StrPath) -> Simulation:
        """Reads what ``stripewise simulate -o`` or :meth:`save` wrote."""
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if not found.get("simulated") or "runs" not in found:
            raise _stripewise.StripewiseError(f"{os.fspath(path)} is not what `stripewise simulate` writes")
        return cls(found)

    def save(self, path: StrPath) -> None:
        """Writes it for ``stripewise report``."""
        pathlib.Path(path).write_text(json.dumps(self._found, indent=2) + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """All of it, as its file has it."""
        return self._found

    @property
    def workload(self) -> str:
        """As it was named."""
        return str(self._found["workload"])

    @property
    def servers(self) -> list[dict[str, Any]]:
        """Name, class, device and model of each server."""
        return list(self._found["servers"])

    @property
    def runs(self) -> list[dict[str, Any]]:
        """One for each plan, then one for each policy: name, prediction, and the outcome with times, rates and a time line."""
        return list(self._found["runs"])

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The run of that plan or policy."""
        for run in self.runs:
            if run["name"] == name:
                return run
        raise KeyError(name)

    def mb_per_s(self) -> dict[str, float]:
        """Bandwidth of each run, in million bytes per second."""
        return {run["name"]: run["outcome"]["mb_per_s"] for run in self.runs}

    def __repr__(self) -> str:
        rates = ", ".join(f"{name} {rate:.4g} MB/s" for name, rate in self.mb_per_s().items())
        return f"<stripewise.Simulation of {self.workload}: {rates}>"

    def _repr_html_(self) -> str:
        def row(run: dict[str, Any]) -> str:
            outcome, predicted = run["outcome"], run["predicted_mb_per_s"]
            latency = outcome["latency"]
            cells = [f"{outcome['mb_per_s']:.4g}", "–" if predicted is None else f"{predicted:.4g}", f"{outcome['time_s']:.4g}"]
            cells += [f"{latency[name] * 1e3:.4g}" for name in ("p50_s", "p95_s", "p99_s")]
            return f"<tr><th>{escape(run['name'])}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"

        head = "<tr><th>plan</th><th>MB/s</th><th>predicted</th><th>time, s</th><th>p50, ms</th><th>p95, ms</th><th>p99, ms</th></tr>"
        return f"<table><caption>{escape(self.workload)}, simulated</caption>{head}{''.join(map(row, self.runs))}</table>"


def simulate(
    workload: StrPath | Trace,
    policies: str | Sequence[str] = (),
    *,
    plans: Sequence[StrPath | Plan] = (),
    servers: str | Sequence[str] = (),
    cluster: StrPath | None = None,
    link: str | None = None,
    region: str = "64MiB",
    processes: int | None = None,
    files: Sequence[StrPath] = (),
    window_s: float | None = None,
    mechanical: bool = False,
    seed: int = 1,
) -> Simulation:
    """Simulates a trace, or a benchmark such as ``"ior:size=1GiB,transfer=64KiB"``, under plans and policies.

    ``servers`` are groups of named devices (``"12xhdd-7200,4xsata-ssd-2012"``); without any the emulated servers of the cluster are simulated.
    ``mechanical`` models seeks, rotation, dies and garbage collection in place of mean times. The same seed gives the same result on every machine.
    """
    name_command()
    named = workload.path if isinstance(workload, Trace) else os.fspath(workload)
    groups = [group for text in names_of(servers) for group in text.split(",")]
    with tempfile.TemporaryDirectory(prefix="stripewise-") as place:
        found = _stripewise.simulate(
            named,
            [_written(plan, place, f"{number}-{plan.policy}.json") if isinstance(plan, Plan) else os.fspath(plan) for number, plan in enumerate(plans)],
            names_of(policies),
            groups,
            None if cluster is None else os.fspath(cluster),
            link,
            region,
            processes,
            paths_of(files),
            window_s,
            mechanical,
            seed,
        )
    return Simulation(json.loads(found))


def _written(given: Plan | Simulation, place: str, name: str) -> str:
    path = os.path.join(place, name)
    given.save(path)
    return path


class Advice:
    """How a program's files should lie on a site's file system, from its logs."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``stripewise --json advise`` prints it."""
        return self._found

    @property
    def change(self) -> bool:
        """Whether other layouts are better than leaving the files."""
        return bool(self._found["change"])

    @property
    def answer(self) -> str:
        """The answer in one sentence."""
        return str(self._found["answer"])

    @property
    def why(self) -> list[str]:
        """The facts that decide, one sentence each."""
        return list(self._found["why"])

    @property
    def gain(self) -> float | None:
        """Time before over time after, less 1, as predicted; None where no layout could be made."""
        gain = self._found["gain"]
        return None if gain is None else gain["expected"]

    @property
    def findings(self) -> list[dict[str, str]]:
        """What else the logs show, those that weigh most first."""
        return list(self._found["findings"])

    @property
    def script(self) -> str | None:
        """The shell script that sets the layouts; None where none could be made."""
        export = self._found["export"]
        return None if export is None else export["script"]

    def __repr__(self) -> str:
        return f"<stripewise.Advice: {self.answer}>"

    def _repr_html_(self) -> str:
        def items(texts: Sequence[str]) -> str:
            return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>" if texts else ""

        findings = [" ".join(filter(None, (finding["text"] + ".", finding["remedy"]))) for finding in self.findings]
        script = ""
        if self.change and self.script:
            # A layout of many parts is one long line.
            lines = [line if len(line) <= 160 else line[:160] + " …" for line in self.script.splitlines()[:60]]
            script = f"<pre>{escape(os.linesep.join(lines))}</pre>"
        also = f"<p>What else the logs show:</p>{items(findings)}" if findings else ""
        return f"<p><b>{escape(self.answer)}</b></p>{items([*self.why, *self._found['layout']])}{script}{also}"


def advise(
    logs: StrPath | Sequence[StrPath],
    site: StrPath,
    *,
    files: Sequence[StrPath] = (),
    least_size: str = "1MiB",
    max_files: int = 64,
    worth_runs: float = 10.0,
) -> Advice:
    """Advises from logs of Darshan, or traces, how a program's files should lie on the file system that ``site`` describes.

    Nothing runs and nothing moves. See ``stripewise advise --help`` and ``stripewise site example``.
    """
    name_command()
    return Advice(json.loads(_stripewise.advise(paths_of(logs), os.fspath(site), paths_of(files), least_size, max_files, worth_runs)))


class Report:
    """One self-contained page; a notebook shows it in a frame."""

    def __init__(self, html: str) -> None:
        #: The page.
        self.html = html

    def save(self, path: StrPath) -> None:
        """Writes the page to a file."""
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<stripewise.Report of {len(self.html)} characters>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" style="width: 100%; height: 60em; border: 0"></iframe>'


def report(*inputs: StrPath | Trace | Plan | Profile | Simulation) -> Report:
    """The report of a trace, plans, a profile, a simulation and measured results, as ``stripewise report`` writes it.

    Each input is an object, or the path of its file.
    """
    name_command()
    with tempfile.TemporaryDirectory(prefix="stripewise-") as place:
        paths = []
        for number, given in enumerate(inputs):
            if isinstance(given, (Plan, Simulation)):
                paths.append(_written(given, place, f"{number}.json"))
            elif isinstance(given, (Trace, Profile)):
                paths.append(given.path)
            else:
                paths.append(os.fspath(given))
        return Report(_stripewise.report(paths))
