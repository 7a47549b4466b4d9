"""What happens to a process: signals, forks, threads, pickles, memory, warnings."""

from __future__ import annotations

import ast
import concurrent.futures
import copy
import ctypes
import multiprocessing
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import cloudpickle
import numpy as np
import pytest
from conftest import ROOT, assert_same_rows, run_python

import popfit

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals and forks")

#: A run of some ten seconds: the demonstration's spectra many times over.
LONG_RUN = f"""
import sys, time, numpy as np, popfit
model = popfit.SpectralModel.from_file({str(ROOT / "data" / "model.toml")!r})
with np.load({str(ROOT / "data" / "spectra.npz")!r}) as file:
    wavelength, flux, ivar = file["wavelength"], np.tile(file["flux"], (800, 1)), np.tile(file["ivar"], (800, 1))
spectra = popfit.Spectra.from_arrays(wavelength, flux, ivar)
"""


@posix
def test_ctrl_c_ends_a_run_with_what_was_fitted() -> None:
    text = LONG_RUN + textwrap.dedent("""
        begun = []
        def report(done, total):
            if done and not begun:
                begun.append(time.time())
                print("begun", flush=True)
        try:
            popfit.fit(model, spectra, device="cpu", progress=report)
        except popfit.Interrupted as interrupted:
            print(time.time(), len(interrupted.table), int(interrupted.table.converged.sum()), flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        sent = time.time()
        process.send_signal(signal.SIGINT)
        words = process.stdout.readline().split()
        assert process.wait(30) == 0
    ended, rows, converged = float(words[0]), int(words[1]), int(words[2])
    assert ended - sent < 0.5 + 2.0  # half a second, with room for a busy machine
    assert rows == 800 * 64
    assert 0 < converged < rows


@posix
def test_ctrl_c_ends_a_run_over_files_whatever_it_replaces(tmp_path: Any) -> None:
    text = LONG_RUN + textwrap.dedent(f"""
        np.savez({str(tmp_path / "many.npz")!r}, wavelength=wavelength, flux=flux, ivar=ivar)
        output = {str(tmp_path / "table.parquet")!r}
        open(output, "w").write("an older result")
        begun = []
        def report(done, total):
            if done and not begun:
                begun.append(True)
                print("begun", flush=True)
        try:
            popfit.fit_files(
                model, {str(tmp_path / "many.npz")!r}, output, overwrite=True, device="cpu", progress=report
            )
        except popfit.Error as error:
            print("an error that a loop would pass over:", error, flush=True)
        except popfit.Interrupted as interrupted:
            print(interrupted, flush=True)
        print(open(output).read(), flush=True)
    """)
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said, table = process.stdout.readline(), process.stdout.readline()
        assert process.wait(30) == 0
    assert "table.parquet" in said and "error" not in said
    assert table == "an older result\n"


@posix
def test_the_command_leaves_no_handler_of_signals(tmp_path: Any) -> None:
    text = textwrap.dedent(f"""
        import os, signal, popfit
        terminated = []
        signal.signal(signal.SIGTERM, lambda *_: terminated.append(True))
        files = [{str(ROOT / "data" / "model.toml")!r}, {str(ROOT / "data" / "spectra.npz")!r}]
        code = popfit.main(["fit", *files, "-o", {str(tmp_path / "out.csv")!r}, "--device", "cpu", "--quiet"])
        interrupts = 0
        for _ in range(3):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                while True:
                    pass
            except KeyboardInterrupt:
                interrupts += 1
        os.kill(os.getpid(), signal.SIGTERM)
        print(code, interrupts, terminated)
    """)
    assert run_python("-c", text).stdout == "0 3 [True]\n"


@posix
def test_a_forked_child_of_a_process_that_has_fitted_is_refused(tmp_path: Any) -> None:
    text = textwrap.dedent("""
        import os, sys, popfit
        model, spectra = popfit.demo_data()
        popfit.fit(model, spectra[:2], device="cpu")
        child = os.fork()
        if child == 0:
            try:
                popfit.fit(model, spectra[:2], device="cpu")
            except popfit.ForkError as error:
                os._exit(7 if "spawn" in str(error) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert run_python("-W", "ignore", "-c", text, timeout=30).stdout == "7\n"


@posix
def test_a_forked_child_of_a_process_that_has_only_imported_popfit_fits() -> None:
    text = textwrap.dedent("""
        import os, popfit
        child = os.fork()
        if child == 0:
            model, spectra = popfit.demo_data()
            os._exit(int(popfit.fit(model, spectra[:2], device="cpu").converged.sum()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert run_python("-c", text, timeout=60).stdout == "2\n"


def test_pickles_fit_the_same_bits(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    spectra = popfit.spectra.as_spectra(demo_arrays)[:5]
    for dumps in (pickle.dumps, cloudpickle.dumps):
        model, again = pickle.loads(dumps((demo_model, spectra)))
        table = popfit.fit(model, again, device="cpu")
        assert_same_rows(table, command_table[:5], ("file",))
        assert_same_rows(pickle.loads(dumps(table)), table)
    assert copy.deepcopy(demo_model).bounds == demo_model.bounds
    # networks are out of band where the protocol allows it
    buffers: list[pickle.PickleBuffer] = []
    small = pickle.dumps(demo_model, 5, buffer_callback=buffers.append)
    assert len(small) < 10_000 < sum(buffer.raw().nbytes for buffer in buffers)
    assert pickle.loads(small, buffers=buffers).bounds == demo_model.bounds


def test_a_spawned_process_fits_the_same_bits(demo_model: popfit.SpectralModel, command_table: popfit.FitTable) -> None:
    spectra = popfit.Spectra.open(ROOT / "data" / "spectra.npz")[:4]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        table = pool.submit(popfit.fit, demo_model, spectra, device="cpu").result(120)
    assert_same_rows(table, command_table[:4])


def test_threads_that_fit_at_once_give_each_others_bits(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any], command_table: popfit.FitTable
) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(popfit.fit, demo_model, demo_arrays, device="cpu") for _ in range(4)]
        for run in runs:
            assert_same_rows(run.result(120), command_table, ("file",))


def test_other_threads_run_while_spectra_are_fitted(
    demo_model: popfit.SpectralModel, demo_arrays: dict[str, Any]
) -> None:
    many = {name: np.tile(a, (8, *[1] * (a.ndim - 1))) if len(a) == 64 else a for name, a in demo_arrays.items()}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(popfit.fit, demo_model, many, device="cpu")
        ticks = 0
        while not run.done():
            time.sleep(0.001)
            ticks += 1
    assert ticks > 10


def test_development_mode_is_silent() -> None:
    text = textwrap.dedent("""
        import popfit
        model, spectra = popfit.demo_data()
        print(popfit.fit(model, spectra, device="cpu").summary["converged"])
    """)
    process = run_python("-X", "dev", "-W", "error", "-c", text)
    assert (process.stdout, process.stderr) == ("64\n", "")


def test_importing_imports_numpy_and_the_standard_library_alone() -> None:
    text = textwrap.dedent("""
        import sys
        import popfit
        roots = {name.partition(".")[0] for name in sys.modules}
        own = {"numpy", "popfit", "__main__", "_virtualenv", "sitecustomize"}
        print(sorted(roots - set(sys.stdlib_module_names) - own))
    """)
    found = ast.literal_eval(run_python("-c", text).stdout)
    assert [name for name in found if not name.startswith(("_distutils_hack", "__editable__", "zipimport"))] == []


@pytest.mark.skipif(
    sys.platform == "win32" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs an allocator that counts its bytes",
)
def test_a_thousand_runs_do_not_grow() -> None:
    # The bytes in use are counted, since what the kernel sees moves in steps of megabytes.
    text = textwrap.dedent("""
        import ctypes, gc, popfit
        model, spectra = popfit.demo_data()
        spectra = spectra[:2]

        class Mallinfo2(ctypes.Structure):
            _fields_ = [
                (name, ctypes.c_size_t)
                for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
            ]

        mallinfo2 = ctypes.CDLL(None).mallinfo2
        mallinfo2.restype = Mallinfo2

        def bytes_in_use_after(cycles):
            for _ in range(cycles):
                made = popfit.SpectralModel.from_toml(model.text, emulators=model.arms)
                table = popfit.fit(model, spectra, device="cpu", threads=2)
                repr(made), table.to_numpy()
            gc.collect()
            info = mallinfo2()
            return info.uordblks + info.hblkhd

        before = bytes_in_use_after(200)
        print(bytes_in_use_after(1000) - before)
    """)
    process = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={"MALLOC_ARENA_MAX": "1", "PYTHONMALLOC": "malloc", **_environment()},
    )
    assert int(process.stdout) < 256_000


@posix
def test_arrays_are_lent_and_not_copied() -> None:
    text = textwrap.dedent("""
        import numpy as np, popfit
        model, _ = popfit.demo_data()
        grid = popfit.Emulator.wavelength.fget(model.arms["b"])[100:1100]
        rows = 20_000

        def peak():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

        flux = np.ones((rows, len(grid)), np.float32)
        ivar = np.zeros((rows, len(grid)), np.float32)  # no pixel counts: nothing is fitted
        before = peak()
        table = popfit.fit(model, popfit.Spectra.from_arrays(grid, flux, ivar), device="cpu")
        results = sum(values.nbytes for values in table._columns.values())
        print((peak() - before - results) / (flux.nbytes + ivar.nbytes))
    """)
    assert float(run_python("-c", text).stdout) < 0.6


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
