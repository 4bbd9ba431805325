"""Settings: bad values are refused by name and all at once; identity; YAML and types agree."""

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import example, given
from hypothesis import strategies as st
from make_records import SETTINGS, changed
from omegaconf import OmegaConf

from bench import hydra_glue
from bench.config import NO_NUMBER, Settings, flatten
from bench.conversion import Choice
from bench.errors import ConfigError
from bench.job import settings_of

CONF = hydra_glue.conf_directory()
GROUPS = [item.name for item in fields(Settings) if is_dataclass(get_type_hints(Settings)[item.name])]
OPTIONS = [(file.parent.name, file.stem) for file in sorted(CONF.glob("*/*.yaml")) if file.parent.name in GROUPS]
KEYS = sorted(flatten(SETTINGS))
NUMBERS = [key for key in KEYS if key.partition(".")[0] not in (*NO_NUMBER, "repeat")]  # those that can change one
ANOTHER: dict[str, Any] = {  # a legal other value of each key whose default is no number and no truth value
    "model.name": "resnet50",
    "model._target_": "toys.Net",
    "model.args": {"scale": 2.0},
    "model.weights": "file.pth",
    "model.input_shape": [3, 224, 224],
    "model.dtype": "bfloat16",
    "stream_layout.name": "serial",
    "stream_layout.intraop_threads": 1,
    "queue.name": "torch",
    "load.name": "closed",
    "load.clients": 2,
    "load.rate": 10.0,
    "load.file": "times.csv",
    "load.steps": [{"rate": 10, "duration_s": 1}],
    "slo.latency_ms": 10.0,
    "duration_s": 10.0,
    "precision.relative_ci": 0.05,
    "precision.metric": "average_latency",
    "precision.max_minutes": 10.0,
    "device.name": "cpu",
    "experiment": "another",
    "compile_mode": "max-autotune",
    "compile_cache": "warm",
    "model_dir": "models",
    "cache_dir": "cache",
    "output_dir": "results",
    "resume": "last",
    "retry": ["failed"],
}
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


def another(key: str) -> Settings:
    """The settings with a legal other value of `key`."""
    old = flatten(SETTINGS)[key]
    value = ANOTHER[key] if key in ANOTHER else not old if isinstance(old, bool) else old + 1
    changes = {key: value}
    if key == "load.name":
        changes["load.clients"] = 1
    if key == "stream_layout.cuda_graph":
        changes["compile"] = False
    if key == "retry":
        changes["resume"] = "last"
    return Settings.from_mapping(changed(changes))


def problems_of(values: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Settings.from_mapping(values)
    return caught.value.problems


@given(st.sampled_from([*KEYS, *GROUPS]), anything)
def test_any_value_is_taken_or_refused_by_its_name(key: str, value: Any) -> None:
    """Whatever stands under a key, the answer is settings with that value or an error that names the key."""
    values = changed({key: value})
    try:
        settings, problems = Settings.from_mapping(values), []
    except ConfigError as error:
        settings, problems = None, error.problems
    assert all(problem.startswith((key, "model.channels_last=true")) for problem in problems)
    if settings is None:
        assert problems
    else:
        taken = flatten(settings.as_mapping())
        if key in taken and not isinstance(value, Mapping):
            assert taken[key] in (value, str(value))
        assert re.fullmatch(r"[0-9a-f]{16}-\d+", settings.fingerprint)


@given(anything)
def test_any_settings_at_all_are_refused_in_words(values: Any) -> None:
    """What is no mapping of the known keys gives a ConfigError and no other exception."""
    assert problems_of(values)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("batch_size", [0, -1, 1.5, 1.0, "abc", "1", None, True, math.nan, 2**20 + 1, 10**400, [1], {}]),
        ("num_iters", [0, 10**8 + 1]),
        ("num_workers", [0, 1025]),
        ("warmup_iters", [-1]),
        ("payloads", [0]),
        ("repeat", [-1]),
        ("seed", [-1, 2**63, 0.5]),
        ("compile", ["maybe", 1, None, "true"]),
        ("compile_mode", ["fast", None, ["default"], {}]),
        ("compile_cache", ["hot"]),
        ("stall_timeout_s", [0, -1, math.nan, math.inf, -math.inf, "soon", None, 10**400, 10**5000]),
        ("experiment", ["", " ", "a\nb", "a\0b", "\udcff", None, [], {}]),
        ("output_dir", ["", None]),
        ("model.name", ["", None]),
        ("model.dtype", ["float64"]),
        ("model.args", [None, [], "x", 1]),
        ("model.input_shape", [[], [0], [3, -1], [1.5], "3,250,250", 3, None, [True], [[3]], ["3"]]),
        ("stream_layout.name", ["parallel"]),
        ("stream_layout.buffers_per_worker", [0]),
        ("stream_layout.intraop_threads", [0, "all"]),
        ("queue.name", ["pipe"]),
        ("load.name", ["open"]),
        ("load.clients", [0, 1.5]),
        ("device.name", ["tpu"]),
        ("device.index", [-1, None]),
    ],
)
def test_value_out_of_range_is_named_with_the_next_step(key: str, values: list[Any]) -> None:
    """One line: the key, its value, what it must be, and what to set."""
    for value in values:
        (problem,) = problems_of(changed({key: value}))
        assert problem.startswith(key)
        assert "=" in problem
        assert "must be" in problem
        assert len(problem) < 400


@pytest.mark.parametrize("value", [0, "abc", -(10**30)])
def test_message_holds_key_value_range_and_next_step(value: Any) -> None:
    """The whole sentence, once."""
    assert problems_of(changed({"batch_size": value})) == [
        f"batch_size={value}: must be a whole number from 1 to 1048576. Set batch_size=1"
    ]


@pytest.mark.parametrize("value", ["a\nb", "x" * 1000])
def test_a_problem_is_one_line_of_bearable_length(value: str) -> None:
    """A value of several lines or of a thousand characters does not drown the message."""
    (problem,) = problems_of(changed({"batch_size": value}))
    assert len(problem.splitlines()) == 1
    assert len(problem) < 200


def test_all_problems_are_named_at_once() -> None:
    """Three wrong values, an unknown key and a missing one are five lines, in one error."""
    values = changed({"batch_size": 0, "compile": "maybe", "load.clients": -1, "queue.colour": "red"})
    del values["seed"]
    found = problems_of(values)
    assert len(found) == 5
    for start in ("batch_size=0:", "compile=maybe:", "load.clients=-1:", "queue.colour: no such key", "seed: missing"):
        assert sum(problem.startswith(start) for problem in found) == 1


@pytest.mark.parametrize("key", sorted(SETTINGS))
def test_missing_key_is_named(key: str) -> None:
    """A mapping without it is refused, with what to set."""
    values = changed({})
    del values[key]
    assert problems_of(values) == [f"{key}: missing. Set {key}=VALUE"]


@given(st.sampled_from(["", *(f"{group}." for group in GROUPS)]), st.text(min_size=1).filter(lambda k: "." not in k))
def test_unknown_key_is_named_with_the_known_ones(prefix: str, key: str) -> None:
    """In each group, a key of any characters: those that are close, or all of them."""
    known = SETTINGS[prefix[:-1]] if prefix else SETTINGS
    if key not in known:
        (problem,) = problems_of(changed({prefix + key: 1}))
        assert "no such key" in problem
        assert "Close: " in problem or all(name in problem for name in known)
        assert "python -m bench --cfg job" in problem


@pytest.mark.parametrize(
    ("key", "close"),
    [("batchsize", "batch_size"), ("rate", "load.rate"), ("clients", "load.clients"), ("modle", "model")],
)
def test_unknown_key_is_told_what_was_meant(key: str, close: str) -> None:
    """A misspelt key, and one whose group was left out."""
    (problem,) = problems_of(changed({key: 1}))
    assert problem.startswith(f"{key}: no such key. Close: {close}")


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"load.name": "closed"}, "load.clients=null"),
        ({"stream_layout.cuda_graph": True}, "stream_layout.cuda_graph=true"),
        ({"stream_layout.cuda_graph": True, "compile": False, "device.name": "cpu"}, "stream_layout.cuda_graph=true"),
        ({"model.channels_last": True, "model.input_shape": [10]}, "model.channels_last=true"),
        ({"model._target_": "toys.Net", "model.weights": "pretrained"}, "model.weights=pretrained"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], start: str) -> None:
    """Each is right by itself; together they cannot be run, and the message says what to set."""
    (problem,) = problems_of(changed(changes))
    assert problem.startswith(start)
    assert "Set " in problem


@pytest.mark.parametrize("args", [{"x": math.nan}, {"x": [math.inf]}, {1: 2, "a": 3}, {"x": {"y": object()}}])
def test_model_args_that_no_record_can_hold_are_refused(args: dict[Any, Any]) -> None:
    """They would be found out after the run, when its record is written."""
    (problem,) = problems_of(changed({"model.args": args}))
    assert problem.startswith("model.args")


@pytest.mark.parametrize("key", NUMBERS)
def test_every_key_that_can_change_a_number_makes_another_cell(key: str) -> None:
    """And so another fingerprint."""
    before, after = Settings.from_mapping(SETTINGS), another(key)
    assert before.cell != after.cell
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("key", sorted(set(KEYS) - {*NUMBERS, "repeat"}))
def test_keys_that_change_no_number_leave_the_identity(key: str) -> None:
    """A name, a place or a time-out makes no other cell and no other run."""
    before, after = Settings.from_mapping(SETTINGS), another(key)
    assert before != after
    assert (before.cell, before.fingerprint) == (after.cell, after.fingerprint)


def test_repeats_are_runs_of_one_cell() -> None:
    """Same cell, another fingerprint."""
    before, after = Settings.from_mapping(SETTINGS), another("repeat")
    assert before.cell == after.cell
    assert before.fingerprint != after.fingerprint


def test_two_keys_that_differ_make_two_cells() -> None:
    """No two of all single changes meet in one identity."""
    cells = [another(key).cell for key in NUMBERS]
    assert len(set(cells)) == len(cells)


def test_settings_survive_the_way_into_a_record_and_back() -> None:
    """as_mapping() is what from_mapping() takes."""
    settings = another("model.args")
    assert Settings.from_mapping(settings.as_mapping()) == settings


def yaml(file: Path) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(OmegaConf.load(file))
    return dict(values)


def of_option(group: str, option: str) -> dict[str, Any]:
    """What a file says of its group; one for the whole config (`@package _global_`) has it under the group's name."""
    values = yaml(CONF / group / f"{option}.yaml")
    return dict(values.get(group, values))


def names_of(cls: type) -> list[str]:
    return ["_target_" if item.name == "target" else item.name for item in fields(cls)]


def test_config_file_has_exactly_the_keys_of_the_type() -> None:
    """The map of the program and its types cannot drift apart."""
    values = yaml(CONF / "config.yaml")
    entries = [next(iter(entry)) for entry in values.pop("defaults") if entry != "_self_"]
    groups = [entry for entry in entries if not entry.startswith("override hydra/")]
    values.pop("hydra")
    assert sorted([*groups, *values]) == sorted(names_of(Settings))


def test_each_key_of_the_config_file_has_a_comment() -> None:
    """Of a few words, behind its value."""
    text = (CONF / "config.yaml").read_text("utf-8").partition("\nhydra:")[0]
    lines = [line for line in text.splitlines() if re.match(r" *(- )?\w+: ", line)]
    assert len(lines) > 20
    for line in lines:
        assert 1 <= len(line.partition(" # ")[2].split()) <= 16, line


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_each_option_of_a_group_has_the_keys_of_its_type(group: str, option: str) -> None:
    """None that is unknown, and all that have no default."""
    cls = get_type_hints(Settings)[group]
    keys = set(of_option(group, option))
    needed = {item.name for item in fields(cls) if item.default is MISSING}
    assert {"_target_" if name == "target" else name for name in needed} <= keys <= set(names_of(cls))


@pytest.mark.parametrize("group", ["stream_layout", "queue", "load", "device"])
def test_each_name_of_a_closed_choice_has_a_file(group: str) -> None:
    """What the type allows can be chosen, and nothing else."""
    hint = get_type_hints(get_type_hints(Settings)[group], include_extras=True)["name"]
    (choice,) = [limit for limit in hint.__metadata__ if isinstance(limit, Choice)]
    assert sorted(choice.names) == sorted(file.stem for file in (CONF / group).glob("*.yaml"))


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_or_asks_for_what_must_be_given(group: str, option: str) -> None:
    """Each file beside the defaults is settings that can be run, but for its ???, each of which is asked for."""
    due = [key for key, value in of_option(group, option).items() if value == "???"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [f"{group}={option}"])
    if due:
        with pytest.raises(ConfigError) as caught:
            settings_of(config)
        assert caught.value.problems == [f"{group}.{key}: must be given. Set {group}.{key}=VALUE" for key in due]
    else:
        assert getattr(settings_of(config), group).name == option


@pytest.mark.parametrize(
    ("given", "hydras"),
    [
        ("seed=1,2 -m payloads=3", "-m seed=1,2 payloads=3"),
        ("seed=1 --config-dir mine payloads=2", "--config-dir mine seed=1 payloads=2"),
        ("seed=1 --cfg job payloads=2", "--cfg job seed=1 payloads=2"),
        ("seed=1 -c job", "-c job seed=1"),
        ("seed=-1 --multirun ~b", "--multirun seed=-1 ~b"),
        ("--info seed=1", "--info=all seed=1"),
        ("seed=1 --info searchpath payloads=2", "--info=searchpath seed=1 payloads=2"),
        ("-m", "-m"),
    ],
)
def test_flags_are_moved_before_overrides(given: str, hydras: str) -> None:
    """Hydra refuses overrides on both sides of a flag, and a flag's value stays with it."""
    assert hydra_glue.flags_first(given.split()) == hydras.split()


@pytest.mark.parametrize(
    ("given", "hydras"),
    [
        ("batch_size=1,2 model=resnet18", "batch_size=1,2 model=resnet18"),
        ("batchsize=1 queue.colour=red a.b=c", "+batchsize=1 +queue.colour=red +a.b=c"),
        ("+new=1 ~old hydra.job.name=x hydra/launcher=y", "+new=1 ~old hydra.job.name=x hydra/launcher=y"),
        ("model.args={a:1} model.args.b=2", "++model.args={a:1} ++model.args.b=2"),
        ("load.rate=1 load.name=burst", "++load.rate=1 load.name=burst"),
        ("sweep=quick", "+sweep=quick"),
    ],
)
def test_keys_that_a_file_may_lack_are_added(given: str, hydras: str) -> None:
    """So that Hydra takes them, and the check of the settings says what is wrong with all of them."""
    assert hydra_glue.flags_first(given.split()) == hydras.split()


@given(st.text(min_size=1), st.text(min_size=1))
@example("𝒜" * 100, "𝒜" * 101)
@example(".", "..")
@example("a/b", "a_b")
def test_path_of_a_name_is_one_component_and_names_stay_apart(one: str, two: str) -> None:
    """Any text becomes a name that a file system takes, and two texts become two."""
    first, second = hydra_glue.path_name(one), hydra_glue.path_name(two)
    assert Path(first).name == first
    assert 0 < len(first.encode()) <= 255
    assert (first == second) == (one == two)
