"""scipy on the fits of `popfit-bench true-chi2 30000 cpu 1 FILE`: successes, and how many find the lowest minimum.

    python benches/peers/regressions.py FILE

Methods `lm` (MINPACK) and `trf` (x_scale="jac") of scipy.optimize.least_squares with its default tolerances, derivatives by
differences. The lowest minimum of a curve is that of popfit and both methods, each from the same start; a fit has found it within 1e-6
of its chi-square.
"""
import argparse
import json
import warnings
from collections import Counter

import numpy as np
from scipy.optimize import least_squares

from far_starts import METHODS, residuals

ALIKE = 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts, successes, found = Counter(), Counter(), Counter()
    with open(arguments.file) as lines:
        for line in lines:
            problem = json.loads(line.replace("NaN", "null"))
            fits = {"popfit": (problem["success"], np.inf if problem["chi2"] is None else problem["chi2"])}
            for name, options in METHODS.items():
                try:
                    fit = least_squares(residuals(problem), problem["start"], **options)
                    fits[name] = (fit.status > 0, 2 * fit.cost)
                except ValueError:  # not finite at the start
                    fits[name] = (False, np.inf)
            lowest = min(chi2 for _, chi2 in fits.values())
            for model in (problem["model"], "all"):
                counts[model] += 1
                for name, (success, chi2) in fits.items():
                    successes[model, name] += success
                    found[model, name] += success and chi2 <= lowest * (1 + ALIKE)
    print("| model | " + " | ".join(f"{name} successes | {name} lowest" for name in fits) + " |")
    for model, count in counts.items():
        cells = [f"{100 * number[model, name] / count:.1f} %" for name in fits for number in (successes, found)]
        print(f"| {model} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
