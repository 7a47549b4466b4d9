"""popfit beside JAX on the workload `emulator`: the demo's network, four labels, no velocity, no continuum.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install -r benches/peers/requirements.txt
    /tmp/peers/bin/python benches/peers/emulator_jax.py [--rounds 3] [--device auto] [--fits 512] [--json FILE]

popfit makes the data and is timed by `cargo run --example emulator_peer`; JAX runs jit(vmap(LM)) over the same spectra from the same
starts, on CUDA where it finds a device, else on the CPU. Both are timed in turn, `--rounds` times; compiling is not timed. Both stop
when a step changes chi2 by less than 1e-6 of it. What is reached is judged by chi2 in float64 at both answers.
"""
import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

FOLDERS = Path(__file__).resolve().parents
ROOT = next((folder for folder in FOLDERS if (folder / "data" / "emulator.safetensors").is_file()), Path.cwd())
NETWORK = ROOT / "data" / "emulator.safetensors"
# fits per call: the fastest counts
BATCHES = {"cpu": (64, 256), "gpu": (1024, 4096, 16384)}
FTOL, MOST_STEPS, MOST_DAMPING = 1e-6, 60, 1e7


def read_network():
    """Layers (weight, bias), and the description of the labels."""
    arrays = load_file(NETWORK)
    with safe_open(NETWORK, "np") as file:
        labels = json.loads(file.metadata()["popfit"])["labels"]
    count = sum(name.startswith("layer") and name.endswith("weight") for name in arrays)
    return [(arrays[f"layer.{k}.weight"], arrays[f"layer.{k}.bias"]) for k in range(count)], labels


def popfit(program, folder, device, seconds, fits):
    """Runs popfit once: its line of numbers. The data and its answers are in the folder."""
    build = ["cargo", "run", "--release", "--quiet", "--example", "emulator_peer", "--"]
    command = [*([program] if program else build), folder, device, seconds, fits]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def make_fit(layers):
    """jit(vmap(LM)): starts, flux and 1/sigma to scaled labels and steps."""
    layers = [(jnp.asarray(w.T), jnp.asarray(b)) for w, b in layers]

    def template(z):
        for weight, bias in layers[:-1]:
            z = jax.nn.silu(z @ weight + bias)
        weight, bias = layers[-1]
        return jnp.exp(z @ weight + bias)

    def fit(start, flux, inverse_sigma):
        def sums(z):
            residual = lambda z: (template(z) - flux) * inverse_sigma
            value, push = jax.linearize(residual, z)
            jacobian = jax.vmap(push)(jnp.eye(z.size, dtype=z.dtype))
            return value @ value, jacobian @ jacobian.T, jacobian @ value

        def unfinished(state):
            return (state[0] < MOST_STEPS) & ~state[6]

        def step(state):
            count, z, cost, normal, gradient, damping, _ = state
            move = jnp.linalg.solve(normal + damping * jnp.diag(jnp.diag(normal)), -gradient)
            trial = sums(z + move)
            better = trial[0] < cost
            done = (better & (cost - trial[0] < FTOL * cost)) | (damping > MOST_DAMPING)
            take = lambda new, old: jnp.where(better, new, old)
            damping = jnp.where(better, 0.2 * damping, 5.0 * damping)
            taken = [take(new, old) for new, old in zip((z + move, *trial), (z, cost, normal, gradient))]
            return (count + 1, *taken, damping, done)

        state = jax.lax.while_loop(unfinished, step, (0, start, *sums(start), jnp.float32(1e-3), False))
        return state[1], state[0] + 1

    return jax.jit(jax.vmap(fit))


def run_jax(fit, arrays, batch, seconds, from_host):
    """Fits a second over whole batches, scaled labels, linearisations. The arrays are on the device, unless they are sent from the host
    while the clock runs."""
    starts, flux, inverse_sigma = arrays if from_host else [jnp.asarray(x) for x in arrays]
    count = len(starts) // batch * batch
    parts = [slice(k, k + batch) for k in range(0, count, batch)]
    send = jax.device_put if from_host else lambda x: x
    one = lambda part: fit(*[send(x[part]) for x in (starts, flux, inverse_sigma)])
    jax.block_until_ready(one(parts[0]))
    begin, rounds = time.perf_counter(), 0
    while rounds == 0 or time.perf_counter() - begin < seconds:
        answers = jax.block_until_ready([one(part) for part in parts])
        rounds += 1
    rate = rounds * count / (time.perf_counter() - begin)
    labels = np.concatenate([np.asarray(z) for z, _ in answers])
    return rate, labels, float(np.mean(np.concatenate([np.asarray(steps) for _, steps in answers])))


def chi2(layers, z, flux, ivar):
    """In float64."""
    z = z.astype(np.float64)
    for weight, bias in layers[:-1]:
        z = z @ weight.T.astype(np.float64) + bias
        z = z / (1 + np.exp(-z))
    weight, bias = layers[-1]
    return ((np.exp(z @ weight.T.astype(np.float64) + bias) - flux) ** 2 * ivar).sum(1)


def scaled(labels, values):
    """Physical labels to scaled ones."""
    columns = [np.log10(x) if label["transform"] == "log10" else x for label, x in zip(labels, values.T)]
    return np.stack([(x - label["mean"]) / label["std"] for label, x in zip(labels, columns)], 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--device", default="auto", help="popfit's: auto, cpu, gpu, …")
    parser.add_argument("--fits", type=int, default=512)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--popfit", type=Path, help="the example emulator_peer, built; without, cargo builds and runs it")
    parser.add_argument("--precision", default="highest", choices=("default", "highest"),
                        help="of JAX's products: highest is f32, as popfit computes; by default cards take TF32")
    options = parser.parse_args()
    program = options.popfit and options.popfit.resolve()
    jax.config.update("jax_default_matmul_precision", None if options.precision == "default" else options.precision)
    layers, labels = read_network()
    fit = make_fit(layers)
    device = jax.devices()[0]
    own = f"jax {jax.__version__}, {device.platform}: {device.device_kind}, products of precision {options.precision}"
    rows, best = [], {}
    with tempfile.TemporaryDirectory() as folder:
        popfit(program, folder, options.device, 0, options.fits)  # builds, and makes the data
        data = load_file(Path(folder) / "workload.safetensors")
        flux, ivar = data["flux"], data["ivar"]
        starts = np.zeros((len(flux), len(labels)), np.float32)
        arrays = [np.asarray(x, np.float32) for x in (starts, flux, np.sqrt(ivar))]
        batches = [batch for batch in BATCHES.get(device.platform, BATCHES["gpu"]) if batch <= len(flux)] or [len(flux)]
        for number in range(options.rounds):
            line = popfit(program, folder, options.device, options.seconds, options.fits)
            peers = {batch: run_jax(fit, arrays, batch, options.seconds, False) for batch in batches}
            batch = max(peers, key=lambda batch: peers[batch][0])
            rate, found, steps = peers[batch]
            sent, _, _ = run_jax(fit, arrays, batch, options.seconds, True)
            ratio = line["fits_per_s"] / rate
            rows.append({"popfit": line["fits_per_s"], "jax": rate, "jax_from_host": sent, "batch": batch, "ratio": ratio})
            print(f"round {number + 1}: popfit {line['fits_per_s']:.0f} fits/s, JAX {rate:.0f} ({sent:.0f} from the host, batch {batch}), "
                  f"ratio {ratio:.2f}", flush=True)
        answers = load_file(Path(folder) / "answers.safetensors")["labels"]
    reached = {"popfit": chi2(layers, scaled(labels, answers), flux, ivar)}
    reached["jax"] = chi2(layers, found, flux[: len(found)], ivar[: len(found)])
    count = len(found)
    lowest = np.minimum(reached["popfit"][:count], reached["jax"])
    dof = flux.shape[1] - len(labels)
    quality = {}
    for name, (where, counted) in {"popfit": (line["device"], line["linearisations"]), "jax": (own, steps)}.items():
        gap = reached[name][:count] - lowest
        quality[name] = {
            "device": where,
            "linearisations": counted,
            "chi2_dof_median": float(np.median(reached[name] / dof)),
            "within_0.01_of_lowest": float(np.mean(gap <= 0.01)),
            "largest_gap": float(gap.max()),
        }
        print(f"{name}, {where}: {counted:.2f} linearisations a fit, median chi2/dof {quality[name]['chi2_dof_median']:.4f}, "
              f"{quality[name]['within_0.01_of_lowest']:.1%} within 0.01 of the lower chi2, largest gap {gap.max():.2g}")
    ratios = sorted(row["ratio"] for row in rows)
    print(f"ratio of fits/s, popfit to JAX: median {ratios[len(ratios) // 2]:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": rows, "reached": quality}, indent=1))


main()
