"""Where the command is: brokers and the reader of Darshan's logs are processes of it."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

_VARIABLE = "STRIPEWISE_COMMAND"


def command() -> pathlib.Path:
    """The path of the command ``stripewise`` that belongs to this package.

    It is what ``STRIPEWISE_COMMAND`` names, or what the wheel brought.
    """
    named = os.environ.get(_VARIABLE)
    if named:
        return pathlib.Path(named)
    own = pathlib.Path(__file__).parent / "bin" / "stripewise"
    if own.is_file():
        return own
    raise FileNotFoundError(
        2, f"the package has no command beside it; name one in {_VARIABLE}, or install the wheel (`make wheel`)", str(own)
    )


def name_command() -> None:
    """Tells the module where the command is, unless the environment does or nothing is known."""
    try:
        os.environ.setdefault(_VARIABLE, str(command()))
    except FileNotFoundError:
        # One in PATH may do.
        pass


def main() -> NoReturn:
    """Becomes the command: what ``stripewise`` and ``python -m stripewise`` run."""
    try:
        path = command()
    except FileNotFoundError as error:
        sys.exit(f"stripewise: {error}")
    os.execv(path, [str(path), *sys.argv[1:]])
