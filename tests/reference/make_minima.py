"""Makes minima.npz and minima.json, which tests/spectra/minima.rs reads: python3 make_minima.py

Spectra of check_minima.py whose lines nearly tell one surface gravity as well as another, with the lowest objective that the
reference reaches from the truth and from eight other gravities.
"""
import json, os
import numpy as np
from check_minima import draw
from fit_reference import DATA, Emulator, Problem, levenberg_marquardt

# of 3000 by seed: all but the last one ended at the wrong gravity before starts were chosen among templates that compete
SPECTRA = {11: [49, 334, 433, 653, 1666, 1718, 2061, 2242, 2251, 2341, 2401], 12: [59, 273, 1293, 1661, 1748, 2477, 1]}
HERE = os.path.dirname(os.path.abspath(__file__))


def lowest(emulator, spectra, n):
    """the objective at the right minimum, and the parameters there"""
    problem = Problem(emulator, spectra["wavelength"], spectra["flux"][n], spectra["ivar"][n], spectra["mask"][n])
    truth = [spectra["TV"][n], 0.0, *(spectra["T" + name][n] for name in ("TEFF", "LOGG", "FEH", "ALPHA"))]
    gravities = [truth[3], *np.linspace(*emulator.bounds[:, 1], 8)]
    fits = [levenberg_marquardt(problem, np.array([*truth[:3], logg, *truth[4:]])) for logg in gravities]
    parameters, _, objective, _ = min(fits, key=lambda fit: fit[2])
    return {"objective": objective, "parameters": np.delete(parameters, 1).tolist()}


def write_minima(emulator, spectra, name):
    """writes the lowest objective of each spectrum, and its parameters"""
    fits = [lowest(emulator, spectra, n) for n in range(len(spectra["flux"]))]
    with open(os.path.join(HERE, name), "w") as file:
        json.dump(fits, file, indent=0)


def main():
    emulator = Emulator(os.path.join(DATA, "emulator.safetensors"))
    parts = []
    for seed, chosen in SPECTRA.items():
        drawn = draw([emulator], 3000, seed, False)
        parts.append({key: values if key == "wavelength" else values[chosen] for key, values in drawn.items()})
    join = lambda key: parts[0][key] if key == "wavelength" else np.concatenate([part[key] for part in parts])
    spectra = {key: join(key) for key in parts[0]}
    spectra["id"] = np.arange(len(spectra["flux"]))
    np.savez_compressed(os.path.join(HERE, "minima.npz"), **{key: spectra[key] for key in ("wavelength", "flux", "ivar", "mask", "id")})
    write_minima(emulator, spectra, "minima.json")


if __name__ == "__main__":
    main()
