"""The wheel: built from the checkout, installed elsewhere, it works with its own configs and with the user's."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import environment

ROOT = Path(__file__).parents[1]
MODEL = """\
name: mine # a group option of the user's own
_target_: my_models.Mine
args: {}
weights: random
input_shape: [3, 16, 16]
dtype: float32
channels_last: false
"""
CODE = """\
from torch import nn


class Mine(nn.Flatten):
    pass
"""


def run(*command: str | Path, cwd: Path, path: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment(path), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, ROOT, cwd=made, path=made)
    (file,) = made.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run(*pip, "--target", target, wheel, cwd=target, path=target)
    return target


def test_wheel_holds_package_configs_and_licence(wheel: Path) -> None:
    """Every module and every config of the checkout, and nothing of the tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {file.relative_to(ROOT).as_posix() for file in (ROOT / "bench").rglob("*.py")}
    assets = {file.relative_to(ROOT).as_posix() for file in (ROOT / "bench/results/page/assets").iterdir()}
    configs = {f"bench/{file.relative_to(ROOT).as_posix()}" for file in (ROOT / "conf").rglob("*.yaml")}
    assert len(assets) > 5
    assert modules | configs | assets <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} <= {"bench", "hydra_plugins", "inference_bench"}


def test_installed_wheel_finds_its_own_configs(installed: Path, tmp_path: Path) -> None:
    """Package and configs are those installed, though the checkout is there as well."""
    code = "import bench.hydra_glue as glue; print(glue.__file__); print(glue.conf_directory())"
    where = run(sys.executable, "-c", code, cwd=tmp_path, path=installed).splitlines()
    assert where == [str(installed / "bench" / "hydra_glue.py"), str(installed / "bench" / "conf")]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A directory with a group option and a class of the user's."""
    (tmp_path / "my_conf" / "model").mkdir(parents=True)
    (tmp_path / "my_conf" / "model" / "mine.yaml").write_text(MODEL)
    (tmp_path / "my_models.py").write_text(CODE)
    return tmp_path


def test_config_dir_adds_the_users_own_option(installed: Path, own: Path) -> None:
    """`python -m bench`, after the overrides as well as before."""
    printed = run(
        sys.executable, "-m", "bench", "model=mine", "--config-dir", "my_conf", "--cfg", "job", cwd=own, path=installed
    )
    assert "_target_: my_models.Mine" in printed


def test_console_script_finds_the_users_own_model(installed: Path, own: Path) -> None:
    """`bench` in the user's directory, whose module is found from there and tried on an input."""
    overrides = ["model=mine", "compile=false", "batch_size=4", f"cache_dir={own / 'cache'}", "dry_run=true"]
    script = installed / "bin" / "bench"
    printed = run(sys.executable, script, "--config-dir", "my_conf", *overrides, cwd=own, path=installed)
    assert printed.startswith("1 runs of 1 cells")
    assert "| mine" in printed
    assert not (own / "outputs").exists()
