"""Draws the two pictures of the README: python3 tools/draw_readme.py POPFIT

docs/src/images/fit.svg is the picture that `POPFIT demo` writes. docs/src/images/speed.svg is a chart of benches/measured.json, which
holds the ratios of BENCHMARKS.md: how many times as many fits per second popfit makes as another program, on the same machine in the
same run. Each row names both solvers; LM is Levenberg–Marquardt.
"""
import html, json, math, pathlib, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/src/images"
LEFT, WIDTH, ROW, TOP, BOTTOM = 350, 690, 38, 56, 50
LOW, HIGH = 0.5, 2000.0


def position(ratio):
    return LEFT + (WIDTH - LEFT - 80) * math.log(ratio / LOW) / math.log(HIGH / LOW)


def words(ratio):
    low, high = ratio
    return f"{low:g} ×" if low == high else f"{low:g} to {high:g} ×"


def chart(measured):
    height = TOP + ROW * len(measured["rows"]) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="sans-serif" font-size="13">', f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           '<text x="12" y="24" font-size="15" font-weight="bold">popfit’s fits per second as a multiple of …</text>']
    bottom = height - BOTTOM
    for tick in (1, 10, 100, 1000):
        x = position(tick)
        colour = "#555" if tick == 1 else "#ddd"
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{tick}</text>')
    for k, row in enumerate(measured["rows"]):
        y = TOP + ROW * k
        middle = math.sqrt(row["ratio"][0] * row["ratio"][1])
        x, begin = position(middle), position(1)
        colour = "#2b6cb0" if middle >= 1 else "#b7791f"
        out.append(f'<text x="{LEFT - 36}" y="{y + 9}" text-anchor="end" font-weight="bold">{html.escape(row["peer"])}</text>')
        out.append(f'<text x="{LEFT - 36}" y="{y + 24}" text-anchor="end" fill="#555" font-size="11">{html.escape(row["solver"] + ": " + row["job"])}</text>')
        out.append(f'<rect x="{min(x, begin):.1f}" y="{y}" width="{abs(x - begin):.1f}" height="20" fill="{colour}"/>')
        out.append(f'<text x="{max(x, begin) + 6:.1f}" y="{y + 15}">{words(row["ratio"])}</text>')
    out.append(f'<text x="12" y="{height - 10}" fill="#555" font-size="11">Logarithmic scale. Machine: {html.escape(measured["machine"])}. LM: Levenberg–Marquardt.</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    IMAGES.mkdir(parents=True, exist_ok=True)
    measured = json.loads((ROOT / "benches/measured.json").read_text(encoding="utf-8"))
    (IMAGES / "speed.svg").write_text(chart(measured), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "demo", "--device", "cpu", "--out", folder], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(pathlib.Path(folder) / "spectrum.svg", IMAGES / "fit.svg")


if __name__ == "__main__":
    main()
