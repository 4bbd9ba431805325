"""load=replay: the send times that a file lists, and what is wrong with one that lists none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import ConfigError
from bench.frontend.replay import replay

S = 1_000_000_000


def test_replay_gives_the_file_in_nanoseconds(tmp_path: Path) -> None:
    """With a heading or none, blank lines and spaces, Windows ends and a byte-order mark, the offsets are the same."""
    for k, text in enumerate(
        ["0\n0.5\n0.5\n1.25\n", "offset_s\n0\n\n 0.5 \n5e-1\n1.25", '\ufeff"t"\r\n0\r\n.5\r\n.5\r\n1.25\r\n']
    ):
        file = tmp_path / f"{k}.csv"
        file.write_text(text, newline="")
        assert replay(file).tolist() == [0, S // 2, S // 2, S * 5 // 4]
        assert replay(file, num_iters=2).tolist() == [0, S // 2]
        assert replay(file, duration_s=1.25).tolist() == [0, S // 2, S // 2]


@given(offsets=st.lists(st.integers(0, 10**15), min_size=1, max_size=50))
def test_replay_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, offsets: list[int]) -> None:
    """Sorted nanoseconds written as decimal seconds come back, up to 11 days, exactly."""
    file = tmp_path_factory.mktemp("replay") / "offsets.csv"
    file.write_text("".join(f"{ns // S}.{ns % S:09d}\n" for ns in sorted(offsets)))
    assert replay(file).tolist() == sorted(offsets)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n-0.5\n", "line 2: '-0.5' is not from 0 s"),
        ("s\n1\n0.5\n", "line 3: '0.5' is earlier than the line before"),
        ("0\n\nnan\n", "line 3: 'nan' is not from"),
        ("nan\n", "line 1: 'nan' is not from"),
        ("0\ninf\n", "line 2: 'inf' is not from"),
        ("1753000000.5\n", "line 1: '1753000000.5' is not from"),
        ("offset_s,size\n0,3\n", "line 1: 'offset_s,size' is more than one column"),
        ("0;3\n", "line 1: '0;3' is more than one column"),
        ("s\n0\none\n", "line 3: 'one' is not a number"),
        ("", "no offsets in it"),
        ("offset_s\n\n", "no offsets in it"),
    ],
)
def test_replay_names_the_line_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """Negative, unsorted, not finite, too late, more columns, words, nothing: each is called what it is."""
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        replay(file)
    assert str(caught.value).startswith(f"load.file={file}: {message}")


def test_replay_of_what_is_no_text_file(tmp_path: Path) -> None:
    """A missing file, a directory and a picture are named."""
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    for name, message in (("none", "No such file"), (".", "Is a directory"), ("picture", "not text in UTF-8")):
        with pytest.raises(ConfigError, match=message):
            replay(tmp_path / name)
