"""Turns what YAML says into typed settings, and says in words what cannot be turned.

A dataclass gives the keys and their types, `Annotated` with a `Range` or a `Choice` the values that
a key may have, and a default makes a key optional.
"""

import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; of a list, each of its numbers."""

    low: float
    high: float

    def __contains__(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Choice:
    """One of a few names."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)

    def __contains__(self, value: Any) -> bool:
        return value in self.names

    def __str__(self) -> str:
        return "one of " + ", ".join(self.names)


Limits = Range | Choice | None


def build(cls: type, values: Any, prefix: str, problems: list[str]) -> Any:
    """Fill dataclass `cls` from `values`, adding a line to `problems` for each wrong key."""
    if not isinstance(values, Mapping):
        problems.append(f"{prefix.rstrip('.')}={_shown(values)}: must be a group of keys, not one value")
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    optional = {item.name for item in fields(cls) if item.default is not MISSING}
    names = {item.name: "_target_" if item.name == "target" else item.name for item in fields(cls)}
    problems.extend(_unknown(cls, prefix, key) for key in sorted(set(map(str, values)) - set(names.values())))
    converted = {}
    for name, key in names.items():
        if key not in values:
            if name in optional:
                continue
            problems.append(f"{prefix}{key}: missing. Set {prefix}{key}=VALUE")
        elif is_dataclass(hints[name]):
            converted[name] = build(hints[name], values[key], f"{prefix}{key}.", problems)
        else:
            converted[name] = _convert(prefix + key, values[key], hints[name], problems)
    return None if problems else cls(**converted)


def keys_of(cls: type, prefix: str = "") -> dict[str, bool]:
    """The dotted keys that settings of class `cls` may have, and of each whether they must have it."""
    keys = {}
    for name, hint in typing.get_type_hints(cls).items():
        key = prefix + ("_target_" if name == "target" else name)
        keys[key] = not hasattr(cls, name)  # a dataclass keeps a default as an attribute
        if is_dataclass(hint):
            keys |= keys_of(typing.cast("type", hint), f"{key}.")
    return keys


def _unknown(cls: type, prefix: str, key: str) -> str:
    known = list(keys_of(cls))
    # Without underlines and case: batchsize is batch_size, and nothing else is as close.
    plain = {name.replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.replace("_", "").replace("-", "").lower(), plain, 3, 0.65)
    names = [name for name in known if name.endswith(f".{key}")] or [plain[name] for name in close]
    hint = f"Close: {', '.join(prefix + name for name in names)}"
    if not names:
        hint = f"Known here: {', '.join(sorted(name for name in known if '.' not in name))}"
    return f"{prefix}{key}: no such key. {hint}. See python -m bench --cfg job"


def _convert(key: str, value: Any, hint: Any, problems: list[str]) -> Any:
    """`value` as type `hint` within its limits, or a line in `problems`."""
    limits: Limits = None
    if typing.get_origin(hint) is Annotated:
        hint, limits = typing.get_args(hint)
    optional = isinstance(hint, types.UnionType)
    if optional:
        if value is None:
            return None
        hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
    if value == "???":
        problems.append(f"{key}: must be given. Set {key}=VALUE")
        return None
    if typing.get_origin(hint) is list:
        if not isinstance(value, list) or not value:
            examples = {int: "[3,250,250]", str: f"[{_example(str, limits)}]"}
            example = examples.get(typing.get_args(hint)[0], "[{rate: 100, duration_s: 10}]")
            problems.append(f"{key}={_shown(value)}: must be a list such as {example}")
            return None
        item = typing.get_args(hint)[0]
        item = Annotated[item, limits] if limits else item
        return [_convert(f"{key}[{k}]", one, item, problems) for k, one in enumerate(value)]
    converted = _scalar(value, hint)
    if converted is None or (limits is not None and converted not in limits):
        wanted = _describe(hint, limits) + (" or null" if optional else "")
        problems.append(f"{key}={_shown(value)}: must be {wanted}. Set {key}={_example(hint, limits)}")
        return None
    return converted


def _scalar(value: Any, hint: Any) -> Any:
    """`value` as exactly `hint`, or None where that would change its meaning."""
    if typing.get_origin(hint) is dict:
        return dict(value) if isinstance(value, Mapping) and _recordable(value) else None
    if hint is bool or isinstance(value, bool):
        return value if hint is bool and isinstance(value, bool) else None
    if hint is int:
        return value if isinstance(value, int) else None
    if hint is float:
        # Compared, not converted, first: NaN is not within, and a huge whole number is no float.
        return float(value) if isinstance(value, (int, float)) and -1e300 < value < 1e300 else None
    if hint is str:
        text = str(value) if isinstance(value, (str, int, float)) else ""
        return text if text.strip() and text.isprintable() else None
    raise TypeError(f"no conversion to {hint}")


def _recordable(value: Any) -> bool:
    """Whether JSON can hold it and give it back."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _recordable(one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_recordable, value))
    return value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _describe(hint: Any, limits: Limits) -> str:
    if isinstance(limits, Choice):
        return str(limits)
    noun = {int: "a whole number", float: "a number", bool: "true or false", str: "a printable text that is not empty"}
    return noun.get(hint, "a mapping of names to values that JSON can hold") + (f" {limits}" if limits else "")


def _example(hint: Any, limits: Limits) -> str:
    if isinstance(limits, Choice):
        return limits.names[0]
    if isinstance(limits, Range):
        return str(limits.low)
    return {bool: "true", str: "TEXT"}.get(hint, "{}")


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**80:  # Python refuses to write out more than 4300 digits
        return "a number of more than 80 digits"
    text = "null" if value is None else " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
