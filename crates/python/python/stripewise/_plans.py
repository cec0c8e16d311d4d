"""Profiles, policies and plans."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Union

from . import _stripewise
from ._command import name_command
from ._tables import WINDOW_S, Table

StrPath = Union[str, "os.PathLike[str]"]


def paths_of(inputs: StrPath | Sequence[StrPath]) -> list[str]:
    """One path or several, as a list of texts."""
    return [os.fspath(inputs)] if isinstance(inputs, (str, os.PathLike)) else [os.fspath(path) for path in inputs]


def names_of(names: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


@dataclass(frozen=True)
class Policy:
    """A policy that makes plans."""

    #: As the command and plan files spell it.
    name: str
    #: What it does, in one line.
    summary: str

    def _repr_html_(self) -> str:
        return f"<b>{escape(self.name)}</b>: {escape(self.summary)}"


class Policies(list[Policy]):
    """Policies, as a list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(policy.name)}</th><td>{escape(policy.summary)}</td></tr>" for policy in self)
        return f"<table><tr><th>policy</th><th></th></tr>{rows}</table>"


def policies() -> Policies:
    """All policies, in the order of their publication."""
    return Policies(Policy(*row) for row in _stripewise.policies())


class Profile:
    """What a cluster's servers were measured to take (``profile.json``)."""

    def __init__(self, path: StrPath) -> None:
        self._source = _stripewise.Profile(os.fspath(path))
        #: As it was named.
        self.path = os.fspath(path)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as its file has it."""
        found: dict[str, Any] = json.loads(self._source.json())
        return found

    @property
    def servers(self) -> list[dict[str, Any]]:
        """What each server takes to read and write, in cluster order."""
        return list(self.to_dict()["servers"])

    def __repr__(self) -> str:
        return f"<stripewise.Profile {self.path!r}: {len(self.servers)} servers>"

    def _repr_html_(self) -> str:
        lines = ("read_sequential", "read_random", "write_sequential", "write_random")
        head = "".join(f"<th>{line.replace('_', ' ')}</th>" for line in lines)

        def cell(line: dict[str, Any]) -> str:
            return f"<td>{line['alpha_s'] * 1e3:.3g} ms + {1e-6 / line['beta_s_per_byte'] if line['beta_s_per_byte'] else float('inf'):.4g} MB/s</td>"

        rows = "".join(
            f"<tr><th>{escape(server['name'])}</th><td>{escape(server['class'])}</td>{''.join(cell(server[line]) for line in lines)}</tr>"
            for server in self.servers
        )
        return f"<table><caption>{escape(self.path)}</caption><tr><th>server</th><th>class</th>{head}</tr>{rows}</table>"


class Plan(Table):
    """Where each region of each file is to lie, and what that is predicted to gain.

    As a table it has a row for each run of regions with one layout, in each window of each file. :func:`plan` makes plans; ``Plan(path)`` reads one.
    """

    _source: _stripewise.Plan

    def __init__(self, path: StrPath) -> None:
        self._source = _stripewise.Plan(os.fspath(path))
        self._text: dict[str, Any] | None = None

    @classmethod
    def _of(cls, source: _stripewise.Plan) -> Plan:
        made = cls.__new__(cls)
        made._source, made._text = source, None
        return made

    def save(self, path: StrPath) -> None:
        """Writes it for ``stripewise apply``, or replaces the file there."""
        self._source.save(os.fspath(path))

    def to_dict(self) -> dict[str, Any]:
        """All of it, as its file has it."""
        if self._text is None:
            self._text = json.loads(self._source.json())
        return self._text

    @property
    def policy(self) -> str:
        """The policy that made it."""
        return str(self.to_dict()["policy"])

    @property
    def files(self) -> list[str]:
        """Paths of the files that it plans."""
        return [file["path"] for file in self.to_dict()["files"]]

    @property
    def is_worth_it(self) -> bool:
        """Whether it is predicted to win back what placing the data costs."""
        return bool(self.to_dict()["verdict"]["apply"])

    @property
    def reason(self) -> str:
        """Why it is, or is not."""
        return str(self.to_dict()["verdict"]["reason"])

    @property
    def gain(self) -> float:
        """Time before over time after, less 1, as predicted."""
        return float(self.to_dict()["gain"]["total"]["expected"])

    @property
    def predicted_mb_per_s(self) -> float | None:
        """Bandwidth of all requests, in million bytes per second."""
        rate = self.to_dict()["predicted"]["total"]["mb_per_s"]
        return None if rate is None else float(rate)

    def __repr__(self) -> str:
        return f"<stripewise.Plan {self.policy}: {len(self.files)} files, {self.gain:+.1%} predicted>"

    def _repr_html_(self) -> str:
        text = self.to_dict()
        rate = self.predicted_mb_per_s
        facts = [
            ("policy", self.policy),
            ("decision", "apply" if self.is_worth_it else "leave the files"),
            ("reason", self.reason),
            ("predicted gain", f"{self.gain:+.1%} ({text['gain']['total']['low']:+.1%} to {text['gain']['total']['high']:+.1%})"),
            ("predicted bandwidth", "" if rate is None else f"{rate:.4g} MB/s"),
            ("files", ", ".join(self.files[:5]) + (f" and {len(self.files) - 5} more" if len(self.files) > 5 else "")),
        ]
        cells = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in facts if value)
        return f"<table><caption>Plan</caption>{cells}</table>"


@dataclass(frozen=True)
class Plans(Sequence[Plan]):
    """The plans of several policies for the same traces, in the order in which they were asked for."""

    #: The plans.
    plans: tuple[Plan, ...]
    #: What to know of the traces, one sentence each.
    remarks: tuple[str, ...]

    def __getitem__(self, position: Any) -> Any:
        return self.plans[position]

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def recommended(self) -> Plan | None:
        """The plan that saves most of those that are worth their move; None if the files are best left where they are."""
        worth = [plan for plan in self.plans if plan.is_worth_it]
        return max(worth, key=lambda plan: plan.to_dict()["verdict"]["saved_s"], default=None)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(plan.policy)}</td><td>{plan.predicted_mb_per_s or float('nan'):.4g}</td><td>{plan.gain:+.1%}</td>"
            f"<td>{'apply' if plan.is_worth_it else 'leave'}</td></tr>"
            for plan in self.plans
        )
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        return (
            f"<table><tr><th>policy</th><th>MB/s predicted</th><th>gain</th><th></th></tr>{rows}</table>"
            + (f"<ul>{remarks}</ul>" if remarks else "")
        )


def plan(
    traces: StrPath | Sequence[StrPath],
    policies: str | Sequence[str] = (),
    *,
    cluster: StrPath | None = None,
    profile: StrPath | Profile | None = None,
    files: Sequence[StrPath] = (),
    least_size: str = "1MiB",
    window_s: float = WINDOW_S,
    region: str | None = None,
    **options: Any,
) -> Plans:
    """Plans the files of traces for a cluster, by each of the policies or else by the default one; nothing is written.

    ``files`` are paths, or begins of them, that are planned whatever their size. ``options`` are those of a plan file (``seed``, ``worth_runs``,
    ``exclude``, ``ssd_room`` and so on); see ``stripewise plan --help``.
    """
    name_command()
    found, remarks = _stripewise.plan(
        paths_of(traces),
        names_of(policies),
        json.dumps(options),
        None if cluster is None else os.fspath(cluster),
        profile.path if isinstance(profile, Profile) else None if profile is None else os.fspath(profile),
        paths_of(files),
        least_size,
        window_s,
        region,
    )
    return Plans(tuple(Plan._of(source) for source in found), tuple(remarks))
