"""Checkpoint files are made, fetched and refused as they should be."""

import dataclasses
import errno
import gc
import hashlib
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from test_models import CPU, make_settings

from bench.backend import checkpoints, download, models
from bench.backend.checkpoints import Prepared, discard, locate, prepare
from bench.backend.models import build
from bench.backend.weights import diagnose
from bench.config import Model, Settings
from bench.errors import BenchError

TENSORS = {"weight": torch.arange(2000.0)}


def saved(state: object, **options: Any) -> bytes:
    """What `torch.save` writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer, **options)
    return buffer.getvalue()


GOOD = saved(TENSORS)
NAME = f"tiny-{hashlib.sha256(GOOD).hexdigest()[:8]}.pth"
PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>"


class Code:
    """Creates a file when it is unpickled by a careless reader."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


class Server(ThreadingHTTPServer):
    """A real HTTP server; `body` is what it sends, and `length` what it says that it sends."""

    daemon_threads = True
    body = GOOD
    length: int | None = None
    status = 200
    gets = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.gets += 1
        self.send_response(server.status)
        self.send_header("Content-Length", str(server.length or len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join(10)


def pretrained(folder: Path, **model: Any) -> Settings:
    settings = make_settings(**{"weights": "pretrained", **model})
    return dataclasses.replace(settings, model_dir=str(folder / "hub"), cache_dir=str(folder / "cache"))


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/models/{NAME}"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_good_file_is_fetched_once_and_shown(tmp_path: Path, server: Server) -> None:
    seen: list[tuple[str, int, int | None]] = []
    settings = pretrained(tmp_path)
    first = prepare(settings, url=address(server), progress=lambda *step: seen.append(step))
    assert first.path == tmp_path / "hub" / NAME
    assert first.path.read_bytes() == GOOD
    assert first.fetched
    assert seen[-1] == (NAME, len(GOOD), len(GOOD))
    again = prepare(settings, url=address(server))
    assert again == Prepared(first.path)
    assert not again.fetched
    assert server.gets == 1
    assert files(tmp_path / "hub") == [NAME]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"body": GOOD[:3000], "length": len(GOOD)}, rf"truncated \(3000 of {len(GOOD)} bytes\)"),
        ({"body": GOOD[:3000]}, "is truncated"),
        ({"body": saved({"weight": torch.zeros(9)})}, "has a wrong hash"),
        ({"body": PAGE}, "is an HTML page"),
        ({"body": b"", "length": 0}, "is empty"),
        ({"status": 404}, "could not be fetched.*404"),
    ],
)
def test_a_bad_download_is_named_and_leaves_nothing(
    tmp_path: Path, server: Server, change: dict[str, Any], words: str
) -> None:
    for key, value in change.items():
        setattr(server, key, value)
    with pytest.raises(BenchError, match=words) as caught:
        prepare(pretrained(tmp_path), url=address(server))
    assert f"place it at {tmp_path / 'hub' / NAME}" in str(caught.value)
    assert files(tmp_path / "hub") == []


def test_without_a_server_it_fails_in_seconds_and_says_what_to_place_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as closed:
        url = address(closed)
    with pytest.raises(BenchError, match=rf"could not be fetched.*place it at .*{NAME}"):
        prepare(pretrained(tmp_path), url=url)
    assert files(tmp_path / "hub") == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_silent_server_is_not_waited_for(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_SILENCE_S", 0.2)
    gone = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _: gone.wait(20))
    try:
        with pytest.raises(BenchError, match="timed out"):
            prepare(pretrained(tmp_path), url=address(server))
    finally:
        gone.set()
        gc.collect()  # http.client leaves the socket of a timed-out request to the collector, which warns


def _prepare_in_child(settings: Settings, url: str, go: Any, results: Any) -> None:
    go.wait(60)
    results.put(prepare(settings, url=url).fetched)


def test_two_processes_make_one_download(tmp_path: Path, server: Server) -> None:
    context = multiprocessing.get_context("spawn")
    go, results = context.Barrier(2), context.SimpleQueue()
    arguments = (pretrained(tmp_path), address(server), go, results)
    children = [context.Process(target=_prepare_in_child, args=arguments) for _ in range(2)]
    try:
        for child in children:
            child.start()
        for child in children:
            child.join(120)
            assert child.exitcode == 0
    finally:
        for child in children:
            child.kill()
    assert sorted([results.get(), results.get()]) == [False, True]
    assert server.gets == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (PAGE, "is an HTML page"),
        (GOOD[:3000], "is truncated"),
        (saved({"weight": torch.zeros(9)}), "has a wrong hash"),
    ],
)
def test_a_bad_file_in_place_is_named_and_left_alone(
    tmp_path: Path, server: Server, content: bytes, words: str
) -> None:
    path = tmp_path / "hub" / NAME
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(BenchError, match=rf"{NAME}: {words}"):
        prepare(pretrained(tmp_path), url=address(server))
    assert path.read_bytes() == content
    assert server.gets == 0


def test_only_the_fetched_and_unchanged_file_is_discarded(tmp_path: Path, server: Server) -> None:
    settings = pretrained(tmp_path)
    first = prepare(settings, url=address(server))
    assert first.path is not None
    assert not discard(prepare(settings, url=address(server)))
    assert discard(first)
    assert not first.path.exists()
    assert not discard(first)
    second = prepare(settings, url=address(server))
    first.path.write_bytes(b"the user's own, written since")
    assert not discard(second)
    assert first.path.exists()


def test_pretrained_weights_are_those_that_torchvision_names() -> None:
    url = checkpoints._torchvision_url(make_settings(name="resnet18", weights="pretrained"))
    assert url.endswith("/resnet18-f37072fd.pth")


def random(folder: Path, seed: int = 0, **model: Any) -> Settings:
    settings = make_settings(**{"name": "squeezenet1_1", **model})
    return dataclasses.replace(settings, cache_dir=str(folder), seed=seed)


def made(settings: Settings) -> Path:
    path = prepare(settings).path
    assert path is not None
    return path


def test_random_weights_are_made_once_and_follow_seed_and_args(tmp_path: Path) -> None:
    path = made(random(tmp_path))
    written = path.stat().st_mtime_ns
    assert made(random(tmp_path)) == path
    assert path.stat().st_mtime_ns == written
    assert not prepare(random(tmp_path)).fetched
    module, _ = build(random(tmp_path), CPU, path)
    same, _ = build(random(tmp_path / "other"), CPU, made(random(tmp_path / "other")))
    other, _ = build(random(tmp_path, seed=1), CPU, made(random(tmp_path, seed=1)))
    key = "features.0.weight"
    assert torch.equal(module.get_parameter(key), same.get_parameter(key))
    assert not torch.equal(module.get_parameter(key), other.get_parameter(key))
    assert made(random(tmp_path, args={"num_classes": 5})) != path


def test_where_random_weights_lie_already_no_model_with_memory_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(random(tmp_path))
    built: list[torch.device] = []
    original = models.construct

    def spy(model: Model, seed: int, device: torch.device = CPU) -> torch.nn.Module:
        built.append(device)
        return original(model, seed, device)

    monkeypatch.setattr(models, "construct", spy)
    assert made(random(tmp_path)) == path
    assert {device.type for device in built} == {"meta"}
    assert locate(random(tmp_path)) == path


@pytest.mark.parametrize("content", [b"", PAGE, None])
def test_a_broken_file_of_our_cache_is_made_again(tmp_path: Path, content: bytes | None) -> None:
    path = made(random(tmp_path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] if content is None else content)
    assert made(random(tmp_path)) == path
    assert path.read_bytes() == whole
    assert [name for name in files(tmp_path) if name.endswith(".part")] == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(BenchError, match="Set cache_dir"):
        prepare(random(tmp_path / "file"))


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BenchError, match=r"No space left on device.*Set cache_dir"):
        prepare(random(tmp_path))
    assert files(tmp_path) == ["locks"]


def test_a_custom_model_needs_no_checkpoint() -> None:
    assert prepare(make_settings(target="bench.backend.models.Noop")) == Prepared(None)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_user_file_is_taken_as_it_is_also_in_the_old_format(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "mine.pth"
    source, _ = build(make_settings(name="squeezenet1_1"), CPU, None)
    path.write_bytes(saved(source.state_dict(), _use_new_zipfile_serialization=not legacy))
    assert zipfile.is_zipfile(path) is not legacy
    settings = make_settings(name="squeezenet1_1", weights=str(path))
    assert prepare(settings) == Prepared(path)
    module, _ = build(settings, CPU, path)
    for one, other in zip(module.parameters(), source.parameters(), strict=True):
        assert torch.equal(one, other)


def other_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("letter.txt", "hello")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (PAGE, "is an HTML page"),
        (GOOD[: len(GOOD) // 2], "is truncated"),
        (saved(TENSORS, _use_new_zipfile_serialization=False)[:400], "is truncated|is not a PyTorch"),
        (b"hello there", "is not a PyTorch checkpoint"),
        (bytes(range(256)), "is not a PyTorch checkpoint"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (other_zip(), "is not a PyTorch checkpoint"),
        (saved([1, 2]), "holds a list, not a state dict"),
        (saved({"epoch": 3, "state_dict": TENSORS}), "holds epoch, state_dict"),
        (saved(torch.nn.Linear(2, 2)), r"pickled code \(torch\.nn\.modules\.linear\.Linear\)"),
    ],
)
def test_a_user_file_that_is_no_checkpoint_is_named_for_what_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "mine.pth"
    path.write_bytes(content)
    settings = make_settings(weights=str(path))
    with pytest.raises(BenchError, match=rf"mine\.pth: .*({words})"):
        prepare(settings)
    with pytest.raises(BenchError, match=rf"mine\.pth: .*({words})"):
        build(settings, CPU, path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_pickled_code_is_refused_and_never_run(tmp_path: Path, form: str) -> None:
    mark, path = tmp_path / "it_ran", tmp_path / "mine.pth"
    code = {"weight": Code(str(mark))}
    content = pickle.dumps(code) if form == "pickle" else saved(code, _use_new_zipfile_serialization=form == "zip")
    path.write_bytes(content)
    with pytest.raises(BenchError, match=r"pickled code \(\w+\.mkdir\).*refused and not run|not a PyTorch"):
        prepare(make_settings(weights=str(path)))
    assert not mark.exists()
    pickle.loads(pickle.dumps(code))
    assert mark.exists()  # the trap works, where it is trodden on


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"model\.weights=.*gone\.pth: no such file.*random, pretrained"):
        prepare(make_settings(weights=str(tmp_path / "gone.pth")))
    assert diagnose(tmp_path) == "is a directory, not a checkpoint file"


def test_the_module_can_be_imported_without_torch() -> None:
    """The supervisor uses Prepared and discard, and must not import torch."""
    code = "import sys, bench.backend.checkpoints; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
