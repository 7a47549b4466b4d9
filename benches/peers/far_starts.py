"""scipy on the problems of `popfit-bench far-starts FILE`: how many fits find the best known minimum.

    python benches/peers/far_starts.py FILE [--every 10]

Methods `lm` (MINPACK) and `trf` (x_scale="jac") of scipy.optimize.least_squares, derivatives by differences, at most 2,000 evaluations.
"""
import argparse
import json
import warnings
from collections import Counter

import numpy as np
from scipy.optimize import least_squares
from scipy.special import erf

METHODS = {"lm": dict(method="lm"), "trf": dict(method="trf", x_scale="jac")}
FUNCTIONS = dict(exp=np.exp, sin=np.sin, tanh=np.tanh, erf=erf)
ALIKE, MOST_EVALUATIONS = 1e-3, 2000


def residuals(problem):
    model = compile(problem["text"].replace("^", "**"), problem["text"], "eval")
    x, y = np.array(problem["x"]), np.array(problem["y"])

    def at(parameters):
        values = eval(model, {}, dict(zip(problem["names"], parameters), x=x, **FUNCTIONS))
        # least_squares takes no infinities
        return np.nan_to_num(values - y, nan=1e10, posinf=1e10, neginf=-1e10)

    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--every", type=int, default=10, help="of so many problems one is fitted")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts, found = Counter(), Counter()
    with open(arguments.file) as lines:
        for number, line in enumerate(lines):
            if number % arguments.every:
                continue
            problem = json.loads(line)
            counts[problem["far"]] += 1
            for name, options in METHODS.items():
                try:
                    fit = least_squares(residuals(problem), problem["start"], max_nfev=MOST_EVALUATIONS, **options)
                except ValueError:  # not finite at the start
                    continue
                found[problem["far"], name] += 2 * fit.cost <= problem["lowest"] * (1 + ALIKE)
    for far, count in counts.items():
        shares = ", ".join(f"{name} {100 * found[far, name] / count:.1f} %" for name in METHODS)
        print(f"{far}: {count} fits, scipy {shares}")


if __name__ == "__main__":
    main()
