"""report.html in a real headless Chromium, from disk: what it shows, how it is used, and that it fetches nothing."""

import base64
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from commands import rows, wait_until
from make_records import make_record, write_run, write_sweep
from matplotlib.colors import to_rgb
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from bench.compare import main as compare
from bench.results.metrics import STAGES
from bench.results.page import write
from bench.results.page.write import LivePage, write_page
from bench.results.plots.stages import stages
from bench.results.plots.style import drawing
from bench.results.record import Record
from bench.results.records import read_records
from bench.results.summary import summarize
from bench.results.tables import write_tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
HOSTILE = '<script>alert(1)</script>"&|'
SHARES = {stage: 0.51 if stage == "compute" else 0.07 for stage in STAGES}
WITHIN_S = 20.0


class Browser:
    """One page at a time; everything it asks of a network or complains of is kept."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, Service(CHROMEDRIVER))
        self.driver.set_page_load_timeout(WITHIN_S)
        self.resize(1280, 900)

    def open(self, file: Path, fragment: str = "") -> None:
        self.driver.get("about:blank")
        self.messages(), self.requests()
        self.driver.get(f"file://{quote(str(file))}#{fragment}")
        self.wait_for_charts()

    def wait_for_charts(self) -> None:
        """Until they can be drawn, which is a moment after the page can be used."""
        wait_until(lambda: bool(self.script("!!window.Plotly")), WITHIN_S)

    def messages(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]  # of selenium

    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]  # type: ignore[no-untyped-call]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {code}", *arguments)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Of all that match, also of what is scrolled out of sight."""
        found: list[str] = self.script(
            "[...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector
        )
        return found

    def column(self, name: str) -> list[str]:
        """The cells of the table below the heading whose key is `name`, without the mark of the best."""
        keys = self.script("[...document.querySelectorAll('#main thead button')].map((node) => node.dataset.column)")
        return [text.rstrip("★☆") for text in self.texts(f"#main tbody tr > :nth-child({keys.index(name) + 1})")]

    def click(self, selector: str) -> None:
        self.script("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def keys(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def chart(self, place: str) -> list[dict[str, Any]]:
        """The traces of a chart, once it is drawn, which it is where it is seen."""
        self.script("document.querySelector(arguments[0]).scrollIntoView()", place.split()[0])
        drawn = "document.querySelector(arguments[0])?.data !== undefined"
        wait_until(lambda: bool(self.script(drawn, place)), WITHIN_S)
        traces: list[dict[str, Any]] = self.script(
            "document.querySelector(arguments[0]).data.map(({name, x, y, error_y, hovertext}) =>"
            "({name, x: [...x], y: [...y], std: [...(error_y?.array || [])], hovertext}))",
            place,
        )
        return traces


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not (CHROMIUM and CHROMEDRIVER):
        reason = "needs Chromium and its driver. On Debian: apt install chromium chromium-driver"
        if os.environ.get("BENCH_REQUIRE_CHROMIUM"):
            pytest.fail(f"BENCH_REQUIRE_CHROMIUM is set: {reason}")
        pytest.skip(reason)
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 batch sizes, compiled and not, two runs each; one cell warned of, one failed, names that are hostile."""
    records: list[Record] = []
    for repeat in range(2):
        for batch_size in (1, 8, 64):
            for compile in (False, True):
                speed = 10.0 * batch_size**0.5 + 3 * compile * (batch_size > 1) + repeat / 8
                failed = batch_size == 64 and not compile
                metrics = {
                    "throughput": speed,
                    "average_latency": batch_size / speed,
                    "latency_p99": 2 * batch_size / speed,
                    "compute": 1.234e-7 * (8 + repeat),
                }
                records.append(
                    make_record(
                        {"experiment": HOSTILE, "batch_size": batch_size, "compile": compile, "repeat": repeat},
                        metrics={} if failed else metrics,
                        status="failed" if failed else "valid",
                        reasons=["backend: RuntimeError: <img src=x onerror=alert(2)> is no tensor"] if failed else [],
                        warnings=["short: the measured window took less than 1 s"] if batch_size == 8 else [],
                        error={"traceback": "Traceback\n<b>RuntimeError</b>"} if failed else None,
                        evidence={"stage_shares": SHARES},
                        seconds=len(records),
                    )
                )
    directory = write_sweep(tmp_path_factory.mktemp("sweeps") / "a b#c?d%", *records)
    write_tables(directory)
    assert write_page(directory, expected=12) == directory / "report.html"
    return directory


@pytest.fixture
def page(browser: Browser, sweep: Path) -> Browser:
    """The sweep's page as it opens; where it is open already, its address brings it back."""
    if f"{quote(str(sweep))}/report.html" not in browser.driver.current_url:
        browser.open(sweep / "report.html")
    elif browser.script("location.hash"):
        browser.driver.execute_async_script(
            "addEventListener('hashchange', () => arguments[0](), {once: true}); location.hash = ''"
        )
    return browser


def test_it_loads_without_a_complaint_and_fetches_nothing(browser: Browser, sweep: Path) -> None:
    """All charts drawn, no console message, no request but for the file, and no address of another in it."""
    page = browser
    page.open(sweep / "report.html")
    for place in ("#explore .chart", "#trade", "#stages", "#order"):
        assert page.chart(place)
    assert page.messages() == []
    assert {url.partition("#")[0].partition(":")[0] for url in page.requests()} <= {"file", "data"}
    assert len([url for url in page.requests() if url.startswith("file")]) <= 1
    html = (sweep / "report.html").read_text(encoding="utf-8")
    markup = re.sub(r'<script( type="text/plain" id="plotly")?>.*?</script>', "", html, flags=re.DOTALL)
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?\s*(https?:)?//""", markup)


def test_the_policy_stops_requests_and_foreign_scripts(page: Browser) -> None:
    """Even a script that got in could neither run nor ask for anything."""
    ran = page.script(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = true';"
        "document.body.append(s); new Image().src = 'http://localhost:1/x'; return window.ran })()"
    )
    assert ran is None
    said: list[str] = []

    def both() -> bool:
        said.extend(page.messages())
        return any("localhost:1" in one for one in said) and any("inline script" in one for one in said)

    wait_until(both, WITHIN_S, lambda: str(said))
    assert all("Content Security Policy" in one for one in said)


def test_user_strings_stay_text(page: Browser, sweep: Path) -> None:
    """Experiment, reasons and tracebacks are shown as they are, and nothing of them becomes an element."""
    assert page.find("h1").text == HOSTILE
    assert page.driver.title.startswith(HOSTILE)
    page.script(
        "[...document.querySelectorAll('#main tbody tr')].find((row) => row.textContent.includes('failed')).click()"
    )
    assert "<img src=x onerror=alert(2)> is no tensor" in page.find("#cell .notes").text
    assert page.texts("#cell pre") == ["Traceback\n<b>RuntimeError</b>"]
    assert page.script("document.querySelectorAll('img, #cell pre b').length") == 0
    assert page.messages() == []
    assert HOSTILE not in (sweep / "report.html").read_text(encoding="utf-8")


def test_values_equal_the_csv(page: Browser, sweep: Path) -> None:
    """Means and deviations in the data and the chart; the table's texts are those of summary.md."""
    data = json.loads(page.script("document.getElementById('data').textContent"))
    expected = rows(sweep / "summary.csv")
    assert len(data["cells"]) == len(expected) == 6
    for cell, row in zip(data["cells"], expected, strict=True):
        assert cell["axes"] == [row["batch_size"], row["compile"]]
        assert str(cell["n"]) == row["n"]
        for name in ("throughput", "average_latency", "latency_p99"):
            found = cell["metrics"].get(name)
            assert [repr(value) for value in (found[:2] if found else [])] == [
                row[f"{name}_{kind}"] for kind in ("mean", "std") if row[f"{name}_{kind}"]
            ]
    compiled = page.chart("#explore .chart")[1]
    wanted = [row for row in expected if row["compile"] == "true"]
    assert compiled["name"] == "compile=true"
    assert compiled["x"] == [1, 8, 64]
    assert compiled["y"] == [float(row["throughput_mean"]) for row in wanted]
    assert compiled["std"] == [float(row["throughput_std"]) for row in wanted]
    summary = (sweep / "summary.md").read_text(encoding="utf-8")
    shown = page.column("m.throughput")
    assert len(shown) == 6
    assert all(text in summary for text in shown)


def test_headings_sort(page: Browser) -> None:
    """By mouse up, by keyboard down, absent values last, said to a screen reader."""
    page.click("#main [data-column='m.throughput']")
    up = page.column("m.throughput")
    assert [float(text.split()[0]) for text in up[:-1]] == sorted(float(text.split()[0]) for text in up[:-1])
    assert up[-1] == "–"
    assert page.script("document.querySelector('#main [aria-sort]').ariaSort") == "ascending"
    page.keys(Keys.ENTER)
    down = page.column("m.throughput")
    assert (down[:-1], down[-1]) == (up[-2::-1], "–")
    assert page.script("document.querySelector('#main [aria-sort]').ariaSort") == "descending"
    assert "descending" in page.texts("#status")[0]
    page.keys(Keys.ENTER)
    assert page.script("document.querySelector('#main [aria-sort]')") is None


def test_numbers_sort_as_numbers(page: Browser) -> None:
    """64 comes after 8, and 0.099 before 0.25."""
    page.click("#main [data-column='batch_size']")
    page.click("#main [data-column='batch_size']")
    assert page.column("batch_size") == ["64", "64", "8", "8", "1", "1"]
    page.click("#main [data-column='m.average_latency']")
    means = [float(text.split()[0]) for text in page.column("m.average_latency")[:-1]]
    assert means == sorted(means)


def test_filters_narrow_table_and_charts(page: Browser) -> None:
    """By an axis, by verdict, by a text of a warning; cleared, all is back."""
    page.click("#filter-compile summary")
    page.script("document.querySelectorAll('#filter-compile input')[1].click()")
    assert page.column("compile") == ["true"] * 3
    assert [trace["name"] for trace in page.chart("#explore .chart")] == ["compile=true"]
    assert "3 of 6 cells" in page.texts("#status")[0]
    page.find("#query").send_keys("SHORT: the")
    assert page.column("batch_size") == ["8"]
    page.click("#clear")
    assert len(page.column("batch_size")) == 6
    page.click("#filter-verdict summary")
    page.script("document.querySelectorAll('#filter-verdict input')[2].click()")
    assert page.column("verdict") == ["✕failed"]
    page.find("#query").send_keys("no such text")
    assert page.texts("#main tbody td") == ["Nothing matches. Clear the filters to see all."]


def test_axes_of_the_chart_are_chosen(page: Browser) -> None:
    """x, line, facet and metric: as many charts and lines as that makes."""

    def pick(place: int, value: str) -> None:
        Select(page.driver.find_elements(By.CSS_SELECTOR, "#pickers select")[place]).select_by_value(value)

    assert [trace["name"] for trace in page.chart("#explore .chart")] == ["compile=false", "compile=true"]
    pick(3, "compile")
    pick(0, "average_latency")
    assert page.texts("#explore figcaption") == ["compile = false", "compile = true"]
    assert len(page.chart("#explore .chart")) == 1
    pick(3, "")
    pick(1, "compile")
    assert [trace["name"] for trace in page.chart("#explore .chart")] == [f"batch_size={n}" for n in (1, 8, 64)]
    assert "Average latency (s): " in page.chart("#explore .chart")[0]["hovertext"][0]


def test_frontier_is_what_no_cell_beats(page: Browser) -> None:
    """Throughput against p99: of this sweep, one cell of each batch size, named as buttons too."""
    assert len(page.chart("#trade")[0]["x"]) == 3
    assert len(page.texts("#trade-note button")) == 3
    page.click("#trade-note button")
    assert page.find("#cell-title").text == page.texts("#trade-note button")[0]


def test_stages_are_stacked_and_listed(page: Browser) -> None:
    """A bar a cell that has them, a part for each stage; the same in a cell's view, in numbers."""
    traces = page.chart("#stages")
    assert [trace["name"] for trace in traces] == page.texts("#stages-legend span")
    assert [len(trace["x"]) for trace in traces] == [5] * 8
    assert sum(trace["x"][0] for trace in traces) == pytest.approx(100)
    page.find("#main .open").send_keys(Keys.ENTER)
    assert "51.0 %" in page.texts("#cell tbody tr")[4]


def test_stages_look_as_in_the_picture(page: Browser, sweep: Path) -> None:
    """The same name, colour and hatching in the page's chart, its legend, a cell's view and stages.png."""
    page.prefer("light")
    page.chart("#stages")
    traces = page.script(
        "document.getElementById('stages').data.map(({name, marker}) => [name, marker.color, marker.pattern.shape])"
    )
    with drawing():
        figure = stages(summarize(read_records(sweep)[0]))
        assert figure is not None
        bars = [(bar.get_label(), bar[0]) for bar in figure.axes[0].containers]
        drawn = [
            [str(name), "rgb({}, {}, {})".format(*(round(255 * part) for part in to_rgb(patch.get_facecolor()))), hatch]
            for name, patch in bars
            for hatch in [(patch.get_hatch() or "")[:1]]
        ]
    assert traces == drawn
    assert page.texts("#stages-legend span") == [name for name, _, _ in drawn]
    page.find("#main .open").send_keys(Keys.ENTER)
    dots = page.script(
        "[...document.querySelectorAll('#cell .key')].map((key) => [key.textContent,"
        "getComputedStyle(key.firstChild).backgroundColor, key.firstChild.dataset.hatch])"
    )
    assert dots == drawn


def test_a_table_shows_that_it_goes_on(page: Browser) -> None:
    """A shadow at the side where columns are cut off, and none where all of them are seen."""

    def cut(expected: str) -> None:
        wait_until(lambda: page.script("document.querySelector('.edges:has(#main)').dataset.cut") == expected, WITHIN_S)

    def opacity(which: str) -> str:
        return str(page.script(f"getComputedStyle(document.querySelector('.edges:has(#main)'), '::{which}').opacity"))

    cut("")
    assert (opacity("before"), opacity("after")) == ("0", "0")
    page.resize(640, 900)
    try:
        cut("right")
        assert (opacity("before"), opacity("after")) == ("0", "1")
        page.script("document.getElementById('main').scrollBy(20, 0)")
        cut("left right")
        page.script("document.getElementById('main').scrollBy(9999, 0)")
        cut("left")
        assert (opacity("before"), opacity("after")) == ("1", "0")
    finally:
        page.script("document.getElementById('main').scrollTo(0, 0)")
        page.resize(1280, 900)


def test_a_cell_opens_by_mouse_and_by_keyboard(page: Browser, sweep: Path) -> None:
    """Its view takes the focus, links to its runs' directories, and gives the focus back."""
    page.click("#main tbody tr:nth-child(3) td")
    assert page.find("#cell-title").text == "batch_size=8, compile=false"
    assert "short: the measured window" in page.find("#cell").text
    links = [link.get_attribute("href") or "" for link in page.driver.find_elements(By.CSS_SELECTOR, "#cell a")]
    assert links == [f"file://{quote(str(sweep))}/{run}/" for run in (2, 8)]
    page.keys(Keys.ESCAPE)
    wait_until(lambda: not page.script("document.getElementById('cell').open"), WITHIN_S)
    page.find("#main tbody tr:nth-child(2) .open").send_keys(Keys.ENTER)
    assert page.find("#cell-title").text == "batch_size=1, compile=true"
    assert page.script("document.activeElement.id") == "cell-title"
    page.keys(Keys.ESCAPE)
    wait_until(lambda: not page.script("document.getElementById('cell').open"), WITHIN_S)
    assert page.script("document.activeElement.classList.contains('open')")


def test_the_view_is_in_the_address(page: Browser, sweep: Path) -> None:
    """A reload, and the address opened anew, show the same: filter, order, axes, cell."""
    page.find("#query").send_keys("compile=true")
    page.click("#main [data-column='m.throughput']")
    Select(page.driver.find_elements(By.CSS_SELECTOR, "#pickers select")[0]).select_by_value("latency_p99")
    page.find("#main tbody tr:nth-child(3) .open").send_keys(Keys.ENTER)
    title, address = page.find("#cell-title").text, page.driver.current_url
    for again in (page.driver.refresh, lambda: page.open(sweep / "report.html", address.partition("#")[2])):
        again()
        assert page.find("#cell-title").text == title == "batch_size=64, compile=true"
        assert page.column("batch_size") == ["1", "8", "64"]
        assert page.find("#query").get_attribute("value") == "compile=true"
        assert "p99" in page.chart("#explore .chart")[0]["hovertext"][0]
    page.keys(Keys.ESCAPE)
    wait_until(lambda: "cell=" not in page.driver.current_url, WITHIN_S)


def test_dark_and_light(page: Browser) -> None:
    """By the system's wish, and by the button, which stays as it is after a reload."""
    ground = "getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    light = page.script(ground)
    page.prefer("dark")
    dark = page.script(ground)
    assert light != dark
    page.click("#theme")
    assert (page.find("#theme").text, page.script(ground)) == ("Theme: light", light)
    page.driver.refresh()
    page.wait_for_charts()
    assert page.script(ground) == light
    page.click("#theme")
    page.click("#theme")
    assert (page.find("#theme").text, page.script(ground)) == ("Theme: auto", dark)
    page.prefer("light")


def test_a_phone_scrolls_down_only(page: Browser, sweep: Path) -> None:
    """360 pixels hold the page and a cell's view."""
    page.resize(360, 740, mobile=True)
    try:
        page.open(sweep / "report.html")
        for place in ("#explore .chart", "#trade", "#order"):
            page.chart(place)
        assert page.script("document.documentElement.scrollWidth") == 360
        page.find("#main .open").send_keys(Keys.ENTER)
        assert page.script("document.getElementById('cell').scrollWidth") <= 360
    finally:
        page.resize(1280, 900)


def test_paper_holds_table_and_charts(page: Browser) -> None:
    """Printing draws the charts that were never looked at, and needs few pages."""
    pdf = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    assert page.script("['trade', 'order'].every((id) => document.getElementById(id).data.length > 0)")


def test_one_cell_stands_open(browser: Browser, tmp_path: Path) -> None:
    """A sweep of one cell, or a single run, shows it at once, without filters; an interrupted one is marked."""
    write_sweep(tmp_path, make_record())
    write_page(tmp_path, "interrupted", expected=9)
    browser.open(tmp_path / "report.html")
    assert browser.find("#progress").text == "Interrupted after 1 of 9 runs."
    assert "100.0" in browser.find("#alone").text
    assert not browser.find("#query").is_displayed()
    assert browser.messages() == []


def test_a_cell_shows_its_middle_run(browser: Browser, tmp_path: Path) -> None:
    """Every request in the distribution, latency and throughput over the time, and what telemetry there is."""
    for repeat, latency in enumerate((0.5, 0.1, 0.2)):
        times = [(k / 10, k / 10 + latency + 0.3 * (k == 25)) for k in range(30)]
        changes = {"repeat": repeat, "load.name": "constant", "load.rate": 10.0, "batch_size": 2}
        record = make_record(changes, metrics={}, seconds=repeat)
        write_run(tmp_path / str(repeat), record, times)
        lines = [f"{10**9 + k * 10**8},{40 + k}" for k in range(30)]
        (tmp_path / str(repeat) / "telemetry.csv").write_text("\n".join(["time_ns,cpu_util", *lines]))
    write_page(tmp_path)
    browser.open(tmp_path / "report.html")
    line, means = browser.chart("#distribution")
    assert line["x"] == [0.2] * 30 + [0.5]
    assert line["hovertext"][-2:] == ["96.67 % within 0.2 s", "100 % within 0.5 s"]
    assert len(means["x"]) == 4  # lowest, p50, p90, highest
    (latencies,) = browser.chart("#course-latency")
    assert "at 3 s: 0.5 s" in latencies["hovertext"]
    assert sorted(latencies["y"]) == [0.2] * 29 + [0.5]
    rates, asked = browser.chart("#course-rate")
    assert sum(rates["y"][:-1]) / 3 * 3.1 == pytest.approx(2 * 30, rel=0.01)
    assert len(asked["y"]) == 4
    (cpu,) = browser.chart("#telemetry-0")
    assert cpu["y"] == [*range(40, 70)]
    assert cpu["hovertext"][3] == "at 0.3 s: CPU, all cores 43"
    assert "run 2, the one with the middle average latency" in browser.find("#alone").text
    assert browser.messages() == []


def test_two_hundred_cells(browser: Browser, tmp_path: Path) -> None:
    """All of them are in the table, and the first chart is drawn."""
    records = [
        make_record({"batch_size": 1 + i % 20, "num_workers": 1 + i // 20, "compile": False}, seconds=i)
        for i in range(200)
    ]
    write_sweep(tmp_path, *records)
    write_page(tmp_path)
    browser.open(tmp_path / "report.html")
    assert len(browser.column("batch_size")) == 200
    assert sum(len(trace["x"]) for trace in browser.chart("#explore .chart")) == 200
    assert browser.messages() == []


def test_a_running_sweep_is_followed(browser: Browser, tmp_path: Path) -> None:
    """The page says how far it is, loads itself again with the same view, and stops when the sweep has ended."""
    write_sweep(tmp_path, *(make_record({"batch_size": size}) for size in (1, 2)))
    write_page(tmp_path, "running", expected=3)
    browser.open(tmp_path / "report.html", "sort=-n")
    assert "Running: 2 of 3 runs" in browser.find("#progress").text
    write_page(tmp_path, "ended", expected=2)
    browser.script("(() => { const now = performance.now(); performance.now = () => now + 60000 })()")
    wait_until(lambda: browser.texts("#progress") == [""], WITHIN_S)
    assert browser.driver.current_url.endswith("#sort=-n")


def test_a_comparison_has_a_page(browser: Browser, tmp_path: Path) -> None:
    """Its rows are those of comparison.csv, sorted and filtered as the other page's, each with its interval drawn."""
    for name, factor in (("a", 1.0), (HOSTILE.replace("/", "-"), 1.2)):
        write_sweep(
            tmp_path / name,
            *(
                make_record(
                    {"batch_size": size, "repeat": repeat},
                    metrics={"throughput": factor**size * (100 + repeat), "average_latency": 1.0 + repeat / 100},
                )
                for size in (1, 2)
                for repeat in range(3)
            ),
        )
    output = tmp_path / "out"
    assert compare([str(tmp_path / "a"), str(tmp_path / HOSTILE.replace("/", "-")), "--output", str(output)]) == 0
    browser.open(output / "comparison.html")
    expected = rows(output / "comparison.csv")
    assert browser.column("ratio") == [f"{float(row['ratio']):.3f}" for row in expected]
    browser.click("#main [data-column='ratio']")
    browser.click("#main [data-column='ratio']")
    assert browser.column("ratio")[0] == "1.440"
    drawn = sorted(x for trace in browser.chart("#intervals") for x in trace["x"])
    assert drawn == sorted(float(row["ratio"]) for row in expected)
    browser.find("#query").send_keys("faster")
    assert browser.column("metric") == ["Throughput"] * 2
    assert HOSTILE.replace("/", "-") in browser.find("h1").text
    assert browser.messages() == []


def compared(browser: Browser, place: Path, factors: dict[int, float], *lost: int) -> None:
    """Open the page of two sweeps over batch sizes, the second so many times as fast, some of it `lost`."""
    for name in ("a", "b"):
        records = [
            make_record(
                {"batch_size": size, "repeat": repeat},
                metrics={"throughput": (factor if name == "b" else 1) * (100 + repeat)},
            )
            for size, factor in factors.items()
            for repeat in range(3)
            if name == "a" or size not in lost
        ]
        write_sweep(place / name, *records)
    compare([str(place / "a"), str(place / "b"), "--gate", "throughput:-3%", "--output", str(place / "out")])
    browser.open(place / "out" / "comparison.html")
    browser.chart("#intervals")


def test_a_comparison_says_what_is_lost_and_which_gates_are_broken(browser: Browser, tmp_path: Path) -> None:
    """Only by what is lost, too: above the table, in its row, and no mark is drawn for it."""
    compared(browser, tmp_path, {1: 1.0, 2: 1.0}, 2)
    assert browser.find("#gates").text.split("\n") == [
        "A gate is broken.",
        "gate broken: throughput:-3%: batch_size=2: no such cell in B",
    ]
    assert browser.column("gate") == ["kept", "BROKEN"]
    assert sum(len(trace["x"]) for trace in browser.chart("#intervals")) == 1
    assert browser.find("#drawn").text == ""
    assert browser.messages() == []


@pytest.mark.parametrize(
    ("factors", "ticks"),
    [
        ({1: 0.5, 2: 2.0}, ["0.5×", "1×", "2×"]),
        ({1: 1.1, 2: 0.9}, ["0.9×", "0.95×", "1×", "1.05×", "1.1×"]),
        ({1: 0.01, 2: 30.0}, ["0.01×", "0.1×", "1×", "10×"]),
    ],
)
def test_ratios_stand_on_a_logarithmic_axis(
    browser: Browser, tmp_path: Path, factors: dict[int, float], ticks: list[str]
) -> None:
    """Half and double are as far from 1, and its ticks are ratios that people read."""
    compared(browser, tmp_path, factors)
    assert browser.script("document.querySelector('#intervals').layout.xaxis.type") == "log"
    assert browser.script("document.querySelector('#intervals').layout.xaxis.ticktext") == ticks


def test_more_ratios_than_are_drawn_are_said(browser: Browser, tmp_path: Path) -> None:
    """The first 60 of 61."""
    compared(browser, tmp_path, dict.fromkeys(range(1, 62), 1.0))
    assert browser.find("#drawn").text == "The first 60 of the 61 rows."


def test_pages_are_rewritten_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With runs of 1 s: 30 s apart at least, and all together no more than 2 % of the time."""
    now, written = [0.0], []

    def slow(*_: Any) -> None:
        written.append(now[0])
        now[0] += 1.5

    monkeypatch.setattr(write, "write_page", slow)
    live = LivePage(tmp_path, clock=lambda: now[0])
    while now[0] < 3600:
        now[0] += 1
        live.run_ended(expected=9)
    gaps = [later - earlier for earlier, later in itertools.pairwise(written)]
    assert 1.5 * len(written) <= 0.02 * 3600 + 1.5
    assert len(written) >= 0.9 * 0.02 * 3600 / 1.5
    assert min(gaps) >= 30


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, since the records and tables are safe."""
    write_sweep(tmp_path, make_record())
    (tmp_path / "report.html").mkdir()
    assert write_page(tmp_path) is None
    assert "report.html: not written" in caplog.text
