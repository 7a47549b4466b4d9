"""Draws a result table of the tutorial on DESI: plot_desi.py RESULTS.parquet COADD PICTURE.svg

Needs pandas, pyarrow, astropy and matplotlib.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from astropy.table import Table

NAMES = {"velocity": "vel", "teff": "teff", "logg": "logg", "feh": "feh", "alpha": "alpha"}  # of popfit, of TRUTH


def main():
    results, coadd, picture = sys.argv[1:]
    table = pd.read_parquet(results)
    truth = Table.read(coadd, "TRUTH").to_pandas()  # rows in the order of the spectra, as those of the table are
    converged = table.status > 0
    good = converged & ((table["flags"] & (8 | 1024)) == 0)  # inside the training set, and fitted well

    figure, (kiel, pulls) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
    kiel.errorbar(table.teff, table.logg, xerr=table.teff_err, yerr=table.logg_err, fmt="none", ecolor="0.7", zorder=1)
    points = kiel.scatter(table.teff, table.logg, c=table.feh, s=30, zorder=2)
    kiel.scatter(truth.teff, truth.logg, marker="x", s=16, color="black", lw=0.8, zorder=3, label="truth")
    kiel.scatter(table.teff[~good], table.logg[~good], s=90, facecolors="none", edgecolors="red", label="flag 8 or 1024")
    kiel.invert_xaxis()
    kiel.invert_yaxis()
    kiel.set_xlabel("$T_\\mathrm{eff}$ (K)")
    kiel.set_ylabel("log g")
    kiel.legend(loc="upper right", fontsize=8)
    figure.colorbar(points, ax=kiel, label="[Fe/H]")

    for k, (name, of_truth) in enumerate(NAMES.items()):
        pull = (table[name] - truth[of_truth]) / table[f"{name}_err"]
        pull = pull[np.isfinite(pull)]  # a parameter at a bound has no error
        pulls.scatter(np.full(len(pull), k) + np.linspace(-0.2, 0.2, len(pull)), pull, s=10)
        print(f"{name:9} pulls {pull.mean():5.2f} ± {pull.std():.2f} ({len(pull)} of {len(table)})")
    pulls.axhspan(-1, 1, color="0.9", zorder=0)
    pulls.set_xticks(range(len(NAMES)), NAMES)
    pulls.set_ylabel("(found − true) / error")
    figure.savefig(picture, metadata={"Date": None})
    print(f"{converged.sum()} of {len(table)} converged, {good.sum()} without flags 8 and 1024")


if __name__ == "__main__":
    main()
