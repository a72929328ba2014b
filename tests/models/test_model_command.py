"""`weft model` on the command line: output, JSON, plots, and errors on bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench import fair
from weft.client.cli.main import cli
from weft.models import figures
from weft.models.chart import Chart

#: A quick run of each subcommand.
RUNS = {
    "queue": ["--producers", "5", "--consumers", "5", "--simulate", "300"],
    "shares": ["0.5:4000", "0.3:6000", "0.2:5000", "--simulate", "0.2"],
    "convoy": ["--simulate", "50"],
    "fabriq": ["--servers", "8", "--messages", "100", "--simulate"],
    "sweep": ["fabriq", "servers=2,4", "messages=20", "--workers", "1"],
}
PNG = b"\x89PNG"


def run(*words: str) -> Result:
    return CliRunner(env={"WEFT_SERVERS": None}).invoke(cli, ["model", *words])


def document(*words: str) -> Any:
    told = run(*words, "--json")
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


@pytest.mark.parametrize("name", RUNS)
def test_each_prints_a_table_json_and_a_plot(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    told = run(name, *RUNS[name], "--plot", str(picture))
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) > 2
    assert picture.read_bytes().startswith(PNG)
    assert document(name, *RUNS[name])


def test_the_papers_figures() -> None:
    assert document("shares", *RUNS["shares"][:3])["served"] == [4000, 3600, 2400]
    assert document("fabriq")["hops"] == pytest.approx(0.985359, abs=1e-6)
    assert document("queue")["model"]["wait"] == pytest.approx(6.9036, abs=1e-4)
    assert document("convoy", "--commute", "1", "--simulate", "50")["simulation"]["convoy_ms"] == 0


def test_shares_beyond_1_are_normalised_and_said() -> None:
    told = run("shares", "5:4000", "3:6000", "2:5000")
    assert "shares sum to 10: normalised to 1" in told.stdout
    found = document("shares", "5:4000", "3:6000", "2:5000")
    assert (found["shares_normalised"], found["shares"]) == (True, [0.5, 0.3, 0.2])


def test_replicated_destinations_take_more_messages() -> None:
    words = "convoy", "--simulate", "50", "--rate", "0.01", "--clock", "hybrid"
    plain, replicated = document(*words), document(*words, "--replicated")
    assert plain["simulation"]["latency_ms"] == 300
    assert replicated["simulation"]["latency_ms"] == 550
    assert run(*words, "--destinations", "1", "--replicated").exit_code != 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queue", "--max-hops", "0"], "max_hops must be a whole number from 1"),
        (["queue", "--buffers", "0"], "buffers must be a whole number from 1"),
        (["queue", "--consumers", "-3"], "consumers must be a whole number from 1"),
        (["queue", "--produce-rate", "nan"], "production rate must be a positive number"),
        (["queue", "--producers", "many"], "is not a valid integer"),
        (["queue", "--simulate", "5"], "objects must be a whole number from 200"),
        (["queue", "--reach", "4", "--consumers", "50"], "as many producers as consumers"),
        (["shares", "0.5"], "is not SHARE:RATE"),
        (["shares", "x:1"], "is not SHARE:RATE"),
        (["shares", "0:1"], "at least one share must be positive"),
        (["shares", "1:1", "--capacity", "-1"], "the capacity must be a positive number"),
        (["shares", "1:1", "--reset", "printed"], "--reset requires --simulate"),
        (["convoy", "--destinations", "9"], "destinations must be 1 to 4"),
        (["convoy", "--commute", "2"], "must be 0 to 1"),
        (["convoy", "--clock", "hybrid"], "--clock requires --simulate"),
        (["convoy", "--simulate", "9", "--skew-ms", "1"], "--skew-ms requires --clock hybrid"),
        (["convoy", "--replicated"], "--replicated requires --simulate"),
        (["fabriq", "--servers", "0"], "servers must be 1 to"),
        (["fabriq", "--procedure", "fresh-random"], "--procedure requires --simulate"),
        (["sweep", "queue", "load=fast"], "'fast' is not a number"),
        (["sweep", "queue", "--master", "x"], "--master requires --spark"),
        (["sweep", "nothing"], "is not one of"),
        (["queue", "--plot", "x.txt"], "must end in .png"),
    ],
)
def test_bad_input_is_refused_with_a_clear_error(words: list[str], told: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert told in found.output
    assert "Traceback" not in found.output


def test_errors_are_json_too() -> None:
    found = run("queue", "--max-hops", "0", "--json")
    assert json.loads(found.stderr)["error"]["code"] == "INVALID_ARGUMENT"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = run("queue", "--plot", "x.png")
    assert found.exit_code == 2
    assert "matplotlib is not installed: pip install 'weft[models]'" in found.output
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(sys.modules, "weft.models.sweep_spark", raising=False)
    found = run("sweep", "fabriq", "messages=9", "--out", "nowhere")
    assert found.exit_code == 2
    assert "pandas is not installed: pip install 'weft[spark]'" in found.output
    assert not Path("nowhere").exists()


def test_every_figure_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two with matplotlib, for their drawing is slow; the others as data."""
    for name, make in figures.charts():
        if "figure-8" in name or name == "queue-figure-9":
            continue  # dozens of simulations: `make models` draws them
        chart = make(200)
        assert isinstance(chart, Chart)
        assert all(len(curve.x) == len(curve.y) > 1 for curve in chart.curves), name
        assert all(curve.label for curve in chart.curves)
    assert figures.main(["--out", str(tmp_path), "--only", "convoy-figure-5"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "convoy-figure-5a.png", "convoy-figure-5b.png",
    }  # fmt: skip


def test_the_fairness_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert fair.main(["--virtual", "--configs", "2", "--seconds", "0.2", "--json"]) == 0
    carried, printed = json.loads(capsys.readouterr().out)
    assert carried["reset"] == "carried"
    assert carried["worst"] < printed["worst"]
