"""The files of the pictures: what is written, listed and removed, and what a failure costs."""

import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from conftest import Start
from make_records import make_record, write_run, write_sweep

import bench.results.plots.style
from bench.report import main
from bench.results.plots.by_axis import Quantity
from bench.results.plots.style import clean
from bench.results.plots.write import PICTURES, write_plots
from bench.results.records import read_records
from bench.results.summary import Summary, summarize

OF_A_RUN = {"latency_distribution", "stages", "over_time"}
TIMES = [(1 + k / 10, 1 + k / 10 + 0.05) for k in range(30)]
ODD = 'a$b$ <c> & "d" \\frac _f 日本'


def a_sweep(directory: Path, batch_sizes: Sequence[int] = (1, 8), experiment: str = "default") -> Summary:
    """Cells of two runs each, with their requests."""
    changes = [{"batch_size": size, "repeat": repeat} for repeat in range(2) for size in batch_sizes]
    records = [
        write_run(directory / str(k), make_record(change | {"experiment": experiment}, seconds=k), TIMES)
        for k, change in enumerate(changes)
    ]
    return summarize(records)


def svg_texts(file: Path) -> list[str]:
    """The texts of an SVG file, as a browser shows them."""
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


def png_size(file: Path) -> tuple[int, int]:
    """Width and height of a whole PNG file."""
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's directory with its pictures."""
    directory = tmp_path_factory.mktemp("sweep")
    write_plots(directory, a_sweep(directory))
    return directory


def test_every_picture_is_a_png_and_an_svg(pictures: Path) -> None:
    """Both whole and readable, the SVG with the axes and the legend as texts, and nothing else is left."""
    expected = set(PICTURES) - {"utilization"}  # there is no telemetry
    written = sorted((pictures / "plots").iterdir())
    assert {file.name for file in written} == {f"{name}.{kind}" for name in expected for kind in ("png", "svg")}
    for file in written:
        if file.suffix == ".png":
            assert min(png_size(file)) > 300
        else:
            assert svg_texts(file)
    texts = svg_texts(pictures / "plots/latency_distribution.svg")
    assert {"Latency distribution", "batch_size=1", "batch_size=8", "Requests answered within (%)"} <= set(texts)
    assert {"Batch size (samples in a request)", "1", "8"} <= set(svg_texts(pictures / "plots/throughput.svg"))


def test_same_records_give_the_same_files_whatever_the_users_matplotlibrc(pictures: Path) -> None:
    """No date, no random name, none of this process's own settings, which stay as they are."""
    first = {file: file.read_bytes() for file in (pictures / "plots").iterdir()}
    with matplotlib.rc_context({"text.usetex": True, "font.size": 33}):
        before = dict(matplotlib.rcParams)
        written = write_plots(pictures, summarize(read_records(pictures)[0]))
        assert dict(matplotlib.rcParams) == before
    assert {file: file.read_bytes() for file in written} == first


def test_single_run_gets_the_pictures_of_a_run(tmp_path: Path) -> None:
    """No axis, no frontier, no order; such a picture that was there is removed, a file of the user's is not."""
    summary = a_sweep(tmp_path)
    (tmp_path / "plots").mkdir()
    for name in ("throughput.png", "throughput.svg", "mine.png"):
        (tmp_path / "plots" / name).write_text("")
    write_plots(tmp_path, summarize(summary.cells[0].records[:1]))
    assert {file.stem for file in (tmp_path / "plots").iterdir()} == OF_A_RUN | {"mine"}


@pytest.mark.parametrize("experiment", [ODD, "x" * 300])
def test_names_are_shown_as_they_are(tmp_path: Path, experiment: str) -> None:
    """Nothing in a user's name is markup: no formula, no XML, no hidden legend; what has no glyph does no harm."""
    records = [
        write_run(
            tmp_path / str(k),
            make_record({"model.weights": f"{experiment}{k}", "batch_size": k + 1, "experiment": experiment}),
            TIMES,
        )
        for k in range(2)
    ]
    write_plots(tmp_path, summarize(records))
    texts = svg_texts(tmp_path / "plots/latency_distribution.svg")
    assert png_size(tmp_path / "plots/latency_distribution.png")
    shown = "x" * 14 + "…" + "x" * 13 if experiment.startswith("x") else f"Experiment {ODD}"
    assert shown in " ".join(texts)


def test_characters_that_xml_does_not_know_become_spaces() -> None:
    """Control characters and lone surrogates, which labels of older records may hold."""
    assert clean("a\x1bb\udcffc\nd") == "a b c d"


def test_legend_keeps_a_name_with_an_underscore_in_front(tmp_path: Path) -> None:
    """matplotlib hides such labels; here they are users' words."""
    records = [
        write_run(tmp_path / f"{k}{size}", make_record({"model.weights": f"_{k}", "batch_size": size}), TIMES)
        for k in range(2)
        for size in (1, 2)
    ]
    write_plots(tmp_path, summarize(records))
    assert {"model.weights=_0", "model.weights=_1"} <= set(svg_texts(tmp_path / "plots/throughput.svg"))


def test_unreadable_requests_cost_their_own_picture_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A cut-off file is named in a warning; all else is drawn."""
    summary = a_sweep(tmp_path)
    for record in [record for cell in summary.cells for record in cell.records]:
        file = record.directory / "requests.parquet"
        file.write_bytes(file.read_bytes()[:100])
    with caplog.at_level(logging.WARNING):
        written = {file.stem for file in write_plots(tmp_path, summary)}
    assert written == {"throughput", "average_latency", "throughput_latency", "stages", "runs_in_order"}
    assert "requests.parquet: " in caplog.text


def test_picture_that_cannot_be_drawn_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is a warning that names the picture; the others are there."""

    def fail(*_: object) -> float:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(Quantity, "mean", fail)
    with caplog.at_level(logging.WARNING):
        written = {file.stem for file in write_plots(tmp_path, a_sweep(tmp_path))}
    assert written == {"throughput_latency", "runs_in_order", *OF_A_RUN}
    assert "plots/throughput: not drawn: ZeroDivisionError: no such thing" in caplog.text


def test_report_draws_and_lists_the_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """summary.md ends with a link to each picture, each of which is there; it is printed whole."""
    a_sweep(tmp_path)
    assert main([str(tmp_path)]) == 0
    text = (tmp_path / "summary.md").read_text("utf-8")
    assert text in capsys.readouterr().out
    links = [line for line in text.partition("## Pictures\n\n")[2].splitlines() if line]
    assert len(links) == len(PICTURES) - 1
    assert links[0] == "- [Throughput of the swept settings](plots/throughput.png) ([SVG](plots/throughput.svg))"
    for link in links:
        for part in link.split("](")[1:]:
            assert (tmp_path / part.partition(")")[0]).is_file()


def test_report_survives_a_broken_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tables and exit code are as they would be; a warning says why there are no pictures."""

    def fail() -> None:
        raise ImportError("libfreetype.so.6: cannot open")

    write_sweep(tmp_path, make_record())
    monkeypatch.setattr(bench.results.plots.style, "drawing", fail)
    with caplog.at_level(logging.WARNING):
        assert main([str(tmp_path)]) == 0
    assert "## Pictures" not in (tmp_path / "summary.md").read_text("utf-8")
    assert "plots: not drawn: ImportError: libfreetype.so.6: cannot open" in caplog.text


def test_report_can_leave_pictures_out(tmp_path: Path) -> None:
    """--no-plots draws nothing."""
    a_sweep(tmp_path)
    assert main([str(tmp_path), "--no-plots"]) == 0
    assert not (tmp_path / "plots").exists()


def test_report_without_plots_lists_those_that_are_there(tmp_path: Path) -> None:
    """--no-plots leaves the pictures as they are, in the directory and in summary.md."""
    a_sweep(tmp_path)
    assert main([str(tmp_path)]) == 0
    before = (tmp_path / "summary.md").read_text("utf-8")
    (tmp_path / "plots" / "stages.svg").unlink()
    assert main([str(tmp_path), "--no-plots"]) == 0
    after = (tmp_path / "summary.md").read_text("utf-8")
    assert after == "".join(line for line in before.splitlines(keepends=True) if "plots/stages" not in line)


def test_command_draws_at_its_end(start: Start) -> None:
    """A real sweep of two cells leaves its pictures, prints their list, and warns of nothing."""
    done = start("plots=true", "batch_size=1,2", "repeat=range(1)", "-m").wait()
    assert done.code == 0, done.stderr
    assert {file.stem for file in (done.directory / "plots").glob("*.svg")} >= {"throughput", "stages", "over_time"}
    assert (done.directory / "summary.md").read_text("utf-8") in done.stdout
    assert "not drawn" not in done.stderr
