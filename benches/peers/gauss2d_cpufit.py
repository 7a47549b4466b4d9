"""popfit beside Cpufit, the CPU half of Gpufit, on GAUSS_2D: 5 x 5 pixels, five parameters, no weights.

    git clone https://github.com/gpufit/Gpufit && cd Gpufit && c++ -O3 -DNDEBUG -shared -fPIC Cpufit/*.cpp -o libCpufit.so
    /tmp/peers/bin/python benches/peers/gauss2d_cpufit.py --library Gpufit/libCpufit.so [--tolerance 1e-4]

popfit makes the data and is timed by `cargo run --example gauss2d_peer`. Cpufit knows one thread: as many threads as there are cores
call it, each with its share of the fits. Both are timed in turn, `--rounds` times. Cpufit stops when chi2 changes by less than `--tolerance`, or that
share of it: 1e-4 is usual. How near the minimum both come is told; popfit computes errors, too. popfit takes all cores.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
GAUSS_2D, LSE, MOST_ITERATIONS = 1, 0, 25
SIDE = 5


def popfit(program, folder, seconds, fits):
    """Runs popfit once: its fits a second. The data and its answers are in the folder."""
    build = ["cargo", "run", "--release", "--quiet", "--example", "gauss2d_peer", "--"]
    command = [*([program] if program else build), folder, "cpu", seconds, fits]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])["fits_per_s"]


class Cpufit:
    """One thread's share of the fits, and room for their answers."""

    def __init__(self, library, y, starts, tolerance):
        # a handle of its own: a call leaves the interpreter's lock to others
        self.call = ctypes.CDLL(str(library)).cpufit
        self.arrays = [np.ascontiguousarray(array, np.float32) for array in (y, starts)]
        self.free, self.tolerance = np.ones(starts.shape[1], np.int32), ctypes.c_float(tolerance)
        self.parameters = np.zeros(starts.shape, np.float32)
        self.states, self.iterations = np.zeros(len(y), np.int32), np.zeros(len(y), np.int32)
        self.chi2 = np.zeros(len(y), np.float32)

    def run(self):
        y, starts = self.arrays
        at = lambda array: array.ctypes.data_as(ctypes.c_void_p)
        size = ctypes.c_size_t
        failed = self.call(
            size(len(y)), size(y.shape[1]), at(y), None, GAUSS_2D, at(starts), self.tolerance, MOST_ITERATIONS, at(self.free), LSE,
            size(0), None, at(self.parameters), at(self.states), at(self.chi2), at(self.iterations))
        assert failed == 0, "Cpufit failed"


def run_cpufit(shares, seconds):
    """Fits a second of all shares, side by side."""
    begin, rounds = time.perf_counter(), 0
    while rounds == 0 or time.perf_counter() - begin < seconds:
        threads = [threading.Thread(target=share.run) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rounds += 1
    return rounds * sum(len(share.states) for share in shares) / (time.perf_counter() - begin)


def distances(y, parameters, start):
    """How far parameters are from the minimum near a start, in units of their errors: the largest of each fit. All in float64."""
    place = np.arange(SIDE * SIDE)

    def linearise(at):
        amplitude, x0, y0, width, offset = (column[:, None] for column in at.T)
        dx, dy = place % SIDE - x0, place // SIDE - y0
        e = np.exp(-(dx**2 + dy**2) / (2 * width**2))
        slope = amplitude * e / width**2
        rows = np.stack([e, slope * dx, slope * dy, slope * (dx**2 + dy**2) / width, np.ones_like(e)], 1)
        return rows, y - amplitude * e - offset

    at = start.astype(float)
    for _ in range(10):
        rows, residual = linearise(at)
        normal = rows @ rows.transpose(0, 2, 1)
        at = at + np.linalg.solve(normal, rows @ residual[:, :, None])[:, :, 0]
    noise = (residual**2).sum(1) / (y.shape[1] - at.shape[1])
    errors = np.sqrt(np.diagonal(np.linalg.inv(normal), axis1=1, axis2=2) * noise[:, None])
    return (np.abs(parameters - at) / errors).max(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--fits", type=int, default=100_000)
    parser.add_argument("--tolerance", type=float, default=1e-4, help="Cpufit's")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--popfit", type=Path, help="the example gauss2d_peer, built; without, cargo builds and runs it")
    options = parser.parse_args()
    program = options.popfit and options.popfit.resolve()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        popfit(program, folder, 0, options.fits)  # builds, and makes the data
        data = load_file(Path(folder) / "workload.safetensors")
        parts = zip(*(np.array_split(data[name], options.cores) for name in ("y", "starts")))
        shares = [Cpufit(options.library, y, starts, options.tolerance) for y, starts in parts]
        run_cpufit(shares, 0)
        for number in range(options.rounds):
            rate = popfit(program, folder, options.seconds, options.fits)
            peer = run_cpufit(shares, options.seconds)
            rows.append({"popfit": rate, "cpufit": peer, "ratio": rate / peer})
            print(f"round {number + 1}: popfit {rate:,.0f} fits/s, Cpufit {peer:,.0f} on {options.cores} threads: {rate / peer:.1f} times", flush=True)
        reached = load_file(Path(folder) / "answers.safetensors")["parameters"]
    peer = np.concatenate([share.parameters for share in shares])
    iterations = float(np.mean(np.concatenate([share.iterations for share in shares])))
    quality = {}
    for name, found in {"popfit": reached, "cpufit": peer}.items():
        away = distances(data["y"], found, reached)
        quality[name] = {"median": float(np.median(away)), "within_0.001": float(np.mean(away <= 1e-3))}
        print(f"{name}: {quality[name]['median']:.1e} errors from the minimum in the median, {quality[name]['within_0.001']:.2%} within 0.001")
    converged = float(np.mean(np.concatenate([share.states for share in shares]) == 0))
    print(f"Cpufit: {converged:.2%} converged, in {iterations:.1f} iterations")
    ratios = sorted(row["ratio"] for row in rows)
    print(f"ratio of fits/s, popfit to Cpufit: median {statistics.median(ratios):.1f}, {ratios[0]:.1f} to {ratios[-1]:.1f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": rows, "tolerance": options.tolerance, "reached": quality}, indent=1))


if __name__ == "__main__":
    main()
