"""Traces and their counts: objects that any reader of Arrow takes without a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, Union

from . import _stripewise
from ._command import name_command

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

StrPath = Union[str, "os.PathLike[str]"]
#: Bytes of a region where nothing else is said: as of a cluster that was made without ``--region``.
REGION_BYTES = 64 << 20
#: Seconds of a window where nothing else is said.
WINDOW_S = 600.0


class _Source(Protocol):
    def stream(self) -> object: ...


class Table:
    """What has rows and typed columns, by the Arrow PyCapsule interface."""

    _source: _Source

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream: the memory itself, not a copy."""
        del requested_schema  # The protocol lets a producer answer with its own.
        return self._source.stream()

    def to_arrow(self) -> pyarrow.Table:
        """As a table of pyarrow, without a copy."""
        import pyarrow

        return pyarrow.table(self)

    def to_polars(self) -> polars.DataFrame:
        """As a frame of polars, without a copy where polars needs none."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self, *, types_mapper: Callable[[pyarrow.DataType], Any] | None = None) -> pandas.DataFrame:
        """As a frame of pandas, through pyarrow: a copy in pandas's own types, or without one by ``types_mapper=pandas.ArrowDtype``."""
        return self.to_arrow().to_pandas(types_mapper=types_mapper)


class Trace(Table):
    """The calls of a run.

    ``path`` is whatever Stripewise reads: its own trace, a log of Darshan with DXT segments, a trace of Recorder, DFTracer or IOSIG, or CSV. As a table it has a
    row for each call, process after process, with the columns of ``stripewise trace export``.
    """

    _source: _stripewise.Trace

    def __init__(self, path: StrPath) -> None:
        name_command()
        self._source = _stripewise.Trace(os.fspath(path))

    @property
    def path(self) -> str:
        """As it was named."""
        return os.fspath(self._source.path)

    @property
    def command(self) -> list[str]:
        """The command that was traced; empty where the trace does not say."""
        return self._source.command

    @property
    def processes(self) -> int:
        """Processes that left records."""
        return self._source.processes

    @property
    def nodes(self) -> list[str]:
        """Names of the machines, in order."""
        return self._source.nodes

    @property
    def files(self) -> list[str]:
        """Paths of the files that the trace names, in order."""
        return self._source.files

    @property
    def start_ns(self) -> int:
        """When the first call began, in ns since 1970."""
        return self._source.start_ns

    @property
    def duration_s(self) -> float:
        """Seconds from the begin of the first call to the end of the last."""
        return self._source.duration_s

    @property
    def warnings(self) -> list[str]:
        """What was odd and read all the same."""
        return self._source.warnings

    def counts(self, *, window_s: float = WINDOW_S, region_bytes: int = REGION_BYTES) -> Counts:
        """The requests by file, window, region and class: what plans are made from."""
        return counts(self.path, window_s=window_s, region_bytes=region_bytes)

    def __len__(self) -> int:
        return self._source.calls

    def __repr__(self) -> str:
        return f"<stripewise.Trace {self.path!r}: {len(self)} calls of {self.processes} processes on {len(self.files)} files, {self.duration_s:.3f} s>"

    def _repr_html_(self) -> str:
        rows = [
            ("command", " ".join(self.command)),
            ("calls", f"{len(self):,}"),
            ("processes", f"{self.processes:,} on {', '.join(self.nodes)}"),
            ("files", f"{len(self.files):,}"),
            ("seconds", f"{self.duration_s:.3f}"),
            ("warnings", "; ".join(self.warnings)),
        ]
        cells = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows if value)
        return f"<table><caption>{escape(self.path)}</caption>{cells}</table>"


class Counts(Table):
    """Requests by file, window, region and class, as :func:`counts` and :meth:`Trace.counts` find them."""

    _source: _stripewise.Counts

    def __init__(self, source: _stripewise.Counts) -> None:
        self._source = source

    @property
    def remarks(self) -> list[str]:
        """What to know of the traces, one sentence each."""
        return self._source.remarks

    def __len__(self) -> int:
        return self._source.rows

    def __repr__(self) -> str:
        return f"<stripewise.Counts: {len(self)} rows>"

    def _repr_html_(self) -> str:
        sums = sorted(self._source.sums, key=lambda row: -row[3])
        rows = "".join(
            f"<tr><th>{escape(path)}</th><td>{direction}</td><td>{requests:,}</td><td>{moved:,}</td></tr>" for path, direction, requests, moved in sums[:20]
        )
        rest = f"<p>and {len(sums) - 20:,} more</p>" if len(sums) > 20 else ""
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        return (
            f"<table><caption>{len(self):,} counts</caption><tr><th>file</th><th></th><th>requests</th><th>bytes</th></tr>{rows}</table>{rest}"
            + (f"<ul>{remarks}</ul>" if remarks else "")
        )


def counts(traces: StrPath | Sequence[StrPath], *, window_s: float = WINDOW_S, region_bytes: int = REGION_BYTES) -> Counts:
    """Counts traces and logs of one program, which are taken to begin at the same time.

    Files of which a log of Darshan has only counters are counted as if each rank had a part of its own.
    """
    named = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    name_command()
    return Counts(_stripewise.Counts([os.fspath(path) for path in named], window_s, region_bytes))
