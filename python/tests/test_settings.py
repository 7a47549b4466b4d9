"""Settings of runs, devices and threads: what is accepted, and what wrong ones get."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, run_python

import popfit
from popfit._checks import timeout_seconds
from popfit._progress import progress_function
from popfit.devices import thread_count
from popfit.fitting import _SETTINGS, _settings

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(popfit.fit).parameters.items()
    if name not in ("model", "spectra", "timeout", "threads", "progress")
}


def settings(**given: Any) -> dict[str, Any]:
    """Return what Rust is given of these settings."""
    return _settings(**DEFAULTS | given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"starts": "4"}, "starts: '4'; give an integer from 1 to 64"),
        ({"starts": 2.0}, "starts: 2.0; give an integer from 1 to 64"),
        ({"starts": True}, "starts: True; give an integer"),
        ({"starts": 0}, "starts: 0; give an integer from 1 to 64"),
        ({"starts": 65}, "from 1 to 64"),
        ({"seed": -1}, "seed: -1; give an integer from 0"),
        ({"seed": 2**64}, "seed: "),
        ({"seed": None}, "seed: None"),
        ({"max_rounds": 2**32}, "max_rounds: 4294967296; give an integer from 1 to 4294967295"),
        ({"max_memory": "1G"}, "max_memory: '1G'; give an integer from 1"),
        ({"batch_size": 0}, "batch_size: 0; give an integer from 1 to 2147483647"),
        ({"solver": "nm"}, 'solver: \'nm\'; give "lm", "nelder-mead" or "lm+nelder-mead"'),
        ({"solver": 1}, "solver: 1; give"),
        ({"precision": None}, 'precision: None; give "f32", "f64" or "mixed"'),
        ({"velocity_scan": True}, 'velocity_scan: True; give "off", "fixed" or "refitted"'),
        ({"released_errors": "yes"}, "released_errors: 'yes'; give True or False"),
        ({"strict": None}, "strict: None; give True or False"),
        ({"cpu_fallback": 1}, "cpu_fallback: 1; give True or False"),
        ({"device": 0}, "device: 0; give"),
        ({"device": None}, "device: None; give"),
        ({"select": ["b"]}, "select: list"),
        ({"select": {"arm": "b"}}, "select: unknown key 'arm'; did you mean 'arms'"),
        ({"select": {"target_ids": "17"}}, "select: target_ids"),
        ({"select": {"target_ids": [1.5]}}, "select: target_ids"),
        ({"select": {"target_ids": True}}, "select: target_ids"),
        ({"select": {"arms": 5}}, "select: arms"),
        ({"select": {"objtype": 5}}, "select: objtype"),
        ({"select": {"min_sn": "two"}}, "select: min_sn"),
        ({"select": {"min_sn": float("nan")}}, "select: min_sn"),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_give(given: dict[str, Any], text: str) -> None:
    with pytest.raises(popfit.InputError, match=re.escape(text)) as caught:
        settings(**given)
    assert caught.value.argument == next(iter(given))


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(popfit.InputError) as caught:
        popfit.fit(*popfit.demo_data(), starts="4", seed=-1, solver="nm", select={"min_sn": "two"})  # type: ignore[arg-type]
    error = caught.value
    assert [fault.split(":")[0] for fault in error.faults] == ["starts", "seed", "solver", "select"]
    assert error.argument == "starts" and str(error).startswith("4 settings are invalid:\n  starts")


def test_numbers_of_numpy_and_devices_are_settings() -> None:
    device = popfit.devices()[0]
    found = settings(
        device=device,
        starts=np.int32(4),
        seed=np.uint64(2**64 - 1),
        strict=np.bool_(True),
        select={"target_ids": np.int64(17), "arms": "b", "min_sn": np.float32(2.0)},
    )
    assert found["device"] == "cpu" and found["starts"] == 4 and found["seed"] == 2**64 - 1
    assert found["strict"] is True and type(found["starts"]) is int
    assert found["target_ids"] == [17] and found["arms"] == ["b"] and found["min_sn"] == 2.0
    assert settings(select={"target_ids": np.array([3, 4])})["target_ids"] == [3, 4]
    model, spectra = popfit.demo_data()
    assert popfit.fit(model, spectra[:2], device=device, starts=np.int64(2), precision="f64").converged.all()


def test_all_settings_of_a_run_are_checked() -> None:
    model, spectra = popfit.demo_data()
    given: dict[str, Any]
    for given in (
        {"timeout": float("nan")},
        {"timeout": "1"},
        {"threads": 1025},
        {"threads": True},
        {"progress": "bar"},
        {"select": 5},
        {"select": {"arms": 5}},
    ):
        with pytest.raises(popfit.InputError) as caught:
            popfit.fit(model, spectra[:2], **given)
        assert caught.value.argument == next(iter(given))
    table = popfit.fit(model, spectra[:2], timeout=float("inf"), threads=1, select={"arms": "b"}, device="cpu")
    assert table.converged.all()


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), -float("inf"), "1", True])
def test_times_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(popfit.InputError, match="timeout") as caught:
        timeout_seconds(wrong)
    assert caught.value.argument == "timeout"


def test_an_endless_timeout_is_none() -> None:
    assert timeout_seconds(None) is None and timeout_seconds(float("inf")) is None and timeout_seconds(1e300) is None
    assert timeout_seconds(np.float32(2.0)) == 2.0 and timeout_seconds(0) == 0.0


@pytest.mark.parametrize("wrong", ["bar", 1, None, []])
def test_progress_is_a_truth_value_or_a_function(wrong: Any) -> None:
    with pytest.raises(popfit.InputError, match="progress") as caught, progress_function(wrong, "spectra"):
        pass
    assert caught.value.argument == "progress"


@pytest.mark.parametrize("wrong", [0, -1, 1025, 2.0, "2", True])
def test_threads_are_integers_from_1_to_1024(wrong: Any) -> None:
    for call in (thread_count, popfit.set_threads):
        with pytest.raises(popfit.InputError, match="from 1 to 1024") as caught:
            call(wrong)
        assert caught.value.argument == "threads"


def test_threads_of_a_call_come_before_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPFIT_THREADS", "7")
    assert thread_count(None) == popfit.get_threads() == 7
    popfit.set_threads(np.int64(1024))
    try:
        assert thread_count(None) == 1024 and thread_count(3) == 3
    finally:
        popfit.set_threads(None)
    for text in ("1025", "-1", "2.0", "9" * 30):
        monkeypatch.setenv("POPFIT_THREADS", text)
        with pytest.raises(popfit.InputError, match=f"POPFIT_THREADS={text}") as caught:
            popfit.get_threads()
        assert caught.value.argument == "threads"


def test_devices_are_printed_a_line_each_with_the_notes(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    cpu = popfit.devices()[0]
    gpu = replace(cpu, selector="gpu:0", name="Card", kind="discrete", driver="driver 1")
    found = popfit.Devices("gpu:0", "it is the only GPU", ["a second card has no driver"], [cpu, gpu])
    lines = repr(found).splitlines()
    assert lines[0].startswith(f"cpu: {cpu.name}") and not lines[0].endswith(", ")
    assert lines[1:] == ["gpu:0 (auto): Card, discrete, driver 1", "a second card has no driver"]
    popfit.show_versions()
    assert repr(popfit.devices()) in capsys.readouterr().out


def test_the_import_loads_what_fits_need_alone() -> None:
    text = "import numpy, sys; before = set(sys.modules); import popfit; print(*sorted(set(sys.modules) - before))"
    loaded = set(run_python("-c", text).stdout.split())
    assert not loaded & {"importlib.metadata", "email", "zipfile", "csv", "pathlib", "astropy", "torch"}


#: Options of the command that are no arguments of `popfit.fit_files`, with the reason.
COMMANDS_ALONE = {
    "help": "Python has help()",
    "profile": "a measurement of the command",
    "gpu-timeout": "a setting of the process for all of its GPUs",
    "quiet": "the library prints nothing but with progress=True",
    "any-fiberstatus": "a key of select",
    "plan": "popfit.surveys.Plan has the parts of plans",
    "part": "Plan.fit_part",
    "take": "an engine hands out the parts, as popfit.dask does",
    "attempts": "Plan.has_failed and popfit.dask.fit have it",
    "lease": "goes with --take",
}
#: Arguments of `popfit.fit_files` that the command does not have, with the reason.
PYTHONS_ALONE = {
    "timeout": "a shell has timeout(1), and --resume goes on",
    "progress": "the command shows its bar in terminals, unless it is --quiet",
}
OTHER_NAMES = {
    "memory": "max_memory",
    "batch": "batch_size",
    "target-id": "select",
    "objtype": "select",
    "min-sn": "select",
    "arms": "select",
}


def test_options_have_the_commands_names_and_defaults() -> None:
    arguments = dict(inspect.signature(popfit.fit_files).parameters)
    del arguments["model"], arguments["files"]  # positional in the command, too
    parts = re.split(r"\n {2,6}(?:-\w, )?--(?=[a-z])", run_python("-m", "popfit", "fit", "--help").stdout)[1:]
    seen = set()
    for part in parts:
        option = re.match(r"[a-z-]+", part)
        assert option is not None
        name = OTHER_NAMES.get(option[0], option[0].replace("-", "_"))
        if option[0] in COMMANDS_ALONE:
            assert name not in arguments
            continue
        assert name in arguments, f"--{option[0]} is no argument of fit_files"
        seen.add(name)
        takes_value = part[len(option[0]) :].startswith((" <", "[=<"))
        listed = re.findall(r"^ +- ([a-z0-9+-]+):", part, re.MULTILINE)
        if name in _SETTINGS and listed:
            assert set(_SETTINGS[name][1:]) - {"f64"} == set(listed), name  # the command has no f64
        stated = re.search(r"\[default: ([^\]]+)\]", part)
        default = arguments[name].default
        if stated is not None and " " not in stated[1]:  # a value, not a rule such as "the model file's, else lm"
            assert str(default) == stated[1], name
        elif name == "output":
            assert default is inspect.Parameter.empty
        else:
            assert default is (None if takes_value else False), name
    assert len(seen) > 15
    assert set(arguments) - seen == set(PYTHONS_ALONE)
    fit = inspect.signature(popfit.fit).parameters
    for name in set(fit) & set(arguments):
        assert fit[name].default == arguments[name].default, name


def lines_of_parameters(text: str) -> list[str]:
    """Return the lines of the demonstration's output that compare parameters with the truth."""
    return re.findall(r"^(?:velocity|teff|logg|feh|alpha) +\d.*$", text, re.MULTILINE)


def test_the_demonstration_prints_the_commands_numbers(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    table = popfit.demo(folder)
    text = capsys.readouterr().out
    command = run_python("-m", "popfit", "demo", "--out", tmp_path / "command").stdout
    expected = [line.split() for line in lines_of_parameters(command)]
    assert len(expected) == 5 and [line.split() for line in lines_of_parameters(text)] == expected
    assert len(table) == 64 and "64 spectra: 64 converged" in text
    page = folder / "index.html"
    assert page.exists() and f"{page}" in text
    calls = [line.strip() for line in text.splitlines() if line.startswith("  ") and "popfit." in line]
    assert len(calls) == 2
    names = {"popfit": popfit}
    fitted, network = (eval(call.split(" = ")[-1], names) for call in calls)
    assert len(fitted) == 64 and isinstance(network, popfit.Emulator)
    popfit.demo(folder)  # once more into the same folder


def test_the_seed_of_guesses_is_that_of_fits() -> None:
    guess = inspect.signature(popfit.SpectralModel.guess).parameters["seed"].default
    assert guess == DEFAULTS["seed"] == popfit.model.DEFAULT_SEED
    assert "seed: int = 3" not in (ROOT / "python" / "popfit" / "model.py").read_text()


def test_limits_of_a_run_are_faults_among_the_others(demo_model: popfit.SpectralModel) -> None:
    with pytest.raises(popfit.InputError, match="4 settings are invalid") as caught:
        popfit.fit(
            demo_model,
            popfit.demo_data()[1],
            starts=0,
            threads=-1,
            timeout=-3,
            progress="x",  # type: ignore[arg-type]
        )
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["starts", "timeout", "threads", "progress"]
