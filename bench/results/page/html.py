"""Data and sources put together to one HTML file that fetches nothing.

A content security policy forbids every request, and every script but ours by their hashes: a text from a record
could not run even if it were not escaped, which jinja2 does.
"""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).with_name("assets")


def render(template: str, scripts: Sequence[str], data: Mapping[str, Any]) -> str:
    """The page of `template` with `data` as JSON in it; `scripts` are files of `assets`, of one scope, in order."""
    script = "\n".join(["'use strict';(() => {", *(_asset(name) for name in scripts), "})();"])
    return (
        _environment()
        .get_template(template)
        .render(
            data=data,
            style=_asset("style.css"),
            theme=_asset("theme.js"),
            plotly=_plotly(),
            script=script,
            hashes=[_hash(_asset("theme.js")), _plotly_hash(), _hash(script)],
        )
    )


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


@functools.cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@functools.cache
def _plotly_hash() -> str:
    return _hash(_plotly())


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
