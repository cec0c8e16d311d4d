"""Stripewise in Python: traces and counts as Arrow tables, plans, simulations, advice, and managed files without redirection.

>>> import stripewise
>>> trace = stripewise.Trace("run.trace")
>>> trace.to_arrow()                                    # zero copy; to_pandas() and to_polars() too
>>> with stripewise.open("data/field.bin", "rb") as file:
...     file.readinto(buffer)

The command, the library that it preloads, and the broker that serves clusters come with the package: ``python -m stripewise`` is the command.
"""

import os as _os

from . import _stripewise
from ._answers import Advice, Report, Simulation, advise, report, simulate
from ._command import command
from ._files import ManagedFile, open
from ._plans import Plan, Plans, Policies, Policy, Profile, plan, policies
from ._stripewise import StripewiseError, __version__
from ._tables import Counts, Trace, counts

__all__ = [
    "Advice",
    "Counts",
    "ManagedFile",
    "Plan",
    "Plans",
    "Policies",
    "Policy",
    "Profile",
    "Report",
    "Simulation",
    "StripewiseError",
    "Trace",
    "__version__",
    "advise",
    "command",
    "counts",
    "open",
    "plan",
    "policies",
    "report",
    "simulate",
]

_os.register_at_fork(
    before=_stripewise.before_fork,
    after_in_parent=_stripewise.after_fork_in_parent,
    after_in_child=_stripewise.after_fork_in_child,
)
