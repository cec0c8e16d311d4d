"""``python -m stripewise``: the command."""

from ._command import main

main()
