"""Prints docs/python-reference.md: signatures and docstrings of all that the package exports.

    PYTHONPATH=... crates/python/reference.py > docs/python-reference.md

tests/python compares; STRIPEWISE_UPDATE_REFERENCE=1 makes it write the page again.
"""

import inspect
import re

import stripewise
import stripewise.fsspec
import stripewise.plots


def docstring(thing):
    """As Markdown: roles of reStructuredText as code."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if not text:
        raise SystemExit(f"{thing} has no docstring")
    return re.sub(r":(?:func|meth|class):`([^`]*)`", r"`\1`", text).replace("``", "`")


def signature(name, thing):
    try:
        # What caches instances hides the constructor.
        found = str(inspect.signature(thing.__init__ if name.startswith("stripewise.fsspec.") else thing))
    except ValueError:
        found = "(...)"
    return f"{name}{found}".replace("'", "").replace("(self, /, ", "(").replace("(self, /)", "()").replace("(self, ", "(").replace("(self)", "()")


def members(kind):
    """What the class itself and the package's own bases define, in the order of the source."""
    found = {}
    for base in reversed([base for base in kind.__mro__ if base.__module__.startswith("stripewise.")]):
        for name, member in vars(base).items():
            is_public = not name.startswith("_") or name == "__arrow_c_stream__"
            if is_public and (isinstance(member, (property, classmethod)) or inspect.isfunction(member)):
                found[name] = member
    return found


def fields(kind):
    """What comments that begin with `#:` describe: fields, and attributes that the constructor sets."""
    if issubclass(kind, Exception):
        return []
    source = inspect.getsource(kind)
    return [(name, text.rstrip(".").replace("``", "`") + ".") for text, name in re.findall(r"^ +#: (.*)\n +(?:self\.)?(\w+)(?:: .*| = .*)$", source, re.MULTILINE)]


def page():
    lines = ["# The Python package in reference", "", "Made of the docstrings by `crates/python/reference.py`; [the guide](python.md) explains.", ""]
    exported = [(f"stripewise.{name}", getattr(stripewise, name)) for name in stripewise.__all__ if not name.startswith("_")]
    exported += [(f"stripewise.plots.{name}", getattr(stripewise.plots, name)) for name in stripewise.plots.__all__]
    exported.append(("stripewise.fsspec.StripewiseFileSystem", stripewise.fsspec.StripewiseFileSystem))
    for name, thing in sorted(exported, key=lambda row: (row[0].count("."), row[0].lower())):
        lines += [f"## `{name}`", ""]
        if not (isinstance(thing, type) and issubclass(thing, Exception)):
            lines += [f"    {signature(name, thing)}", ""]
        lines += [docstring(thing), ""]
        if not isinstance(thing, type):
            continue
        described = fields(thing)
        lines += [f"- `{field}`: {text}" for field, text in described]
        for member, value in members(thing).items():
            is_method = not isinstance(value, property)
            if isinstance(value, classmethod):
                value = value.__func__
            text = inspect.getdoc(value) or inspect.getdoc(getattr(thing, member))
            if not text:
                raise SystemExit(f"{name}.{member} has no docstring")
            # What others wrote may go on about parameters.
            text = text.split("\n\n")[0] if name.startswith("stripewise.fsspec") else text
            shown = signature(member, value) if is_method else member
            text = " ".join(docstring(type("_", (), {"__doc__": text})).split("\n"))
            lines.append(f"- `{shown}`: {text}")
        if described or members(thing):
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
