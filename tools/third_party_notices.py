#!/usr/bin/env python3
"""Writes the licences of the crates that are linked into the command popfit, or checks them against deny.toml.

    tools/third_party_notices.py            writes THIRD-PARTY.md
    tools/third_party_notices.py --check    writes nothing, and exits with 1 if a licence is not allowed

THIRD-PARTY.md lists the package's normal dependencies, without those of tests and build scripts, one line per crate,
and then the text of each distinct licence file, once. `--check` looks at every crate, with all features and with the
dependencies of tests and build scripts, as `cargo deny check licenses` does. It reads the expressions in the crates'
manifests alone and does not compare them with the licence files, so `cargo deny` remains the better check.

Needs Python 3.11 and cargo. Nothing is built. Tests: python3 -m doctest tools/third_party_notices.py
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = "x86_64-unknown-linux-gnu"
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
SOURCE_FILE = {".rs", ".py", ".toml", ".json", ".html"}
NONE = "no licence expression"


def metadata(manifest: Path, platform: str, all_features: bool) -> dict:
    """Returns what `cargo metadata` says of the package and its dependencies."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(manifest)]
    if platform != "all":
        command += ["--filter-platform", platform]
    if all_features:
        command.append("--all-features")
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if found.returncode != 0:
        sys.exit("third_party_notices: cargo metadata failed; its message is above")
    return json.loads(found.stdout)


def linked_crates(found: dict, package: str) -> list[dict]:
    """Returns the normal dependencies of a package, direct and indirect, sorted by name and version.

    >>> crate = lambda name: {"id": name, "name": name, "version": "1.0.0"}
    >>> to = lambda name, *kinds: {"pkg": name, "dep_kinds": [{"kind": kind} for kind in kinds]}
    >>> edges = {"own": [to("a", None, "dev"), to("b", "dev"), to("c", "build")], "a": [to("d", None)]}
    >>> nodes = [{"id": name, "deps": edges.get(name, [])} for name in ("own", "a", "b", "c", "d")]
    >>> found = {"packages": [crate(node["id"]) for node in nodes], "workspace_members": ["own"],
    ...          "resolve": {"nodes": nodes}}
    >>> [crate["name"] for crate in linked_crates(found, "own")]
    ['a', 'd']
    """
    packages = {crate["id"]: crate for crate in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    roots = [name for name in found["workspace_members"] if packages[name]["name"] == package]
    if not roots:
        sys.exit(f"third_party_notices: there is no package {package} in this workspace")
    seen, waiting = set(roots), list(roots)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    crates = [packages[name] for name in seen.difference(roots)]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Returns whether a licence expression (SPDX, or the older form with slashes) can be met by allowed licences alone.

    >>> is_allowed("MIT OR GPL-3.0-only", {"MIT"}), is_allowed("MIT AND GPL-3.0-only", {"MIT"})
    (True, False)
    >>> is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"})
    True
    >>> is_allowed("A AND B OR C", {"C"}), is_allowed("A AND (B OR C)", {"C"})
    (True, False)
    >>> is_allowed("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"})
    False
    >>> is_allowed("Apache-2.0 WITH LLVM-exception OR MIT", {"Apache-2.0 WITH LLVM-exception"})
    True
    >>> is_allowed("Unlicense/MIT", {"MIT"})
    True
    >>> is_allowed("MIT OR", {"MIT"})
    Traceback (most recent call last):
        ...
    ValueError: `MIT OR` is no licence expression
    """
    words = re.findall(r"[()]|[^\s()/]+", expression.replace("/", " OR "))
    fault = ValueError(f"`{expression}` is no licence expression")

    def either() -> bool:
        met = both()
        while words and words[0] == "OR":
            words.pop(0)
            met = both() or met
        return met

    def both() -> bool:
        met = single()
        while words and words[0] == "AND":
            words.pop(0)
            met = single() and met
        return met

    def single() -> bool:
        word = words.pop(0) if words else ""
        if word == "(":
            met = either()
            if not words or words.pop(0) != ")":
                raise fault
            return met
        if word in ("", ")", "OR", "AND", "WITH"):
            raise fault
        if words and words[0] == "WITH":
            if len(words) < 2:
                raise fault
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in allowed

    met = either()
    if words:
        raise fault
    return met


def refusals(crates: list[dict], allowed: set[str]) -> list[str]:
    """Returns a line for each crate whose licence is not allowed.

    >>> crates = [{"name": name, "version": "1.0.0", "license": licence} for name, licence in
    ...           [("good", "MIT"), ("bad", "GPL-3.0-only"), ("none", None), ("odd", "MIT OR")]]
    >>> for line in refusals(crates, {"MIT"}):
    ...     print(line)
    bad 1.0.0: `GPL-3.0-only` is not allowed
    none 1.0.0: it has no licence expression
    odd 1.0.0: `MIT OR` is no licence expression
    """
    lines = []
    for crate in crates:
        name, licence = f"{crate['name']} {crate['version']}", crate["license"]
        if not licence:
            lines.append(f"{name}: it has {NONE}")
            continue
        try:
            if not is_allowed(licence, allowed):
                lines.append(f"{name}: `{licence}` is not allowed")
        except ValueError as error:
            lines.append(f"{name}: {error}")
    return lines


def licence_files(crate: dict) -> list[Path]:
    """Returns the licence files in a crate's own folder and in LICENSES below it, sorted by name."""
    folder = Path(crate["manifest_path"]).parent
    found = {path for path in folder.iterdir() if LICENCE_FILE.match(path.name)}
    found |= {folder / crate["license_file"]} if crate.get("license_file") else set()
    for below in [path for path in found if path.is_dir()] + [folder / "LICENSES"]:
        found |= set(below.iterdir()) if below.is_dir() else set()
    return sorted(path for path in found if path.is_file() and path.suffix.lower() not in SOURCE_FILE)


def without_layout(text: str) -> str:
    """Returns a text by which two files are the same licence: lines may be broken elsewhere.

    >>> without_layout("Permission is\\r\\n  granted\\n") == without_layout("Permission is granted")
    True
    """
    return " ".join(text.split())


def notices(crates: list[dict], package: str, platform: str) -> str:
    """Returns the contents of THIRD-PARTY.md."""
    groups, texts = {}, {}
    for crate in crates:
        groups.setdefault(crate["license"] or NONE, []).append(crate)
        for path in licence_files(crate):
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip("\n")
            _, owners = texts.setdefault(without_layout(text), (text, []))
            owner = f"{crate['name']} {crate['version']}"
            if owner not in owners:
                owners.append(owner)
    lines = [
        "# Third-party software",
        "",
        f"These {len(crates)} crates are linked into {package} when it is built for {platform}",
        "with its default features.",
        "The list was written by `tools/third_party_notices.py`.",
        "",
        "## Crates by licence",
    ]
    for licence in sorted(groups):
        lines += ["", f"### {licence}", ""]
        for crate in groups[licence]:
            repository = crate["repository"] or crate["homepage"] or "no repository is given"
            lines.append(f"- {crate['name']} {crate['version']}, {licence}, {repository}")
    lines += ["", "## Licence texts"]
    for text, owners in texts.values():
        # a fence longer than any in the text
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        lines += ["", f"### {', '.join(owners)}", "", f"{fence}text", text, fence]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--package", default="popfit-cli", help="whose dependencies are listed [popfit-cli]")
    parser.add_argument("--manifest-path", type=Path, default=ROOT / "Cargo.toml", help="its Cargo.toml")
    parser.add_argument("--platform", default=PLATFORM, help=f"the target that is built for, or all [{PLATFORM}]")
    parser.add_argument("--output", type=Path, default=ROOT / "THIRD-PARTY.md", help="the file [THIRD-PARTY.md]")
    parser.add_argument("--deny", type=Path, default=ROOT / "deny.toml", help="what is allowed [deny.toml]")
    parser.add_argument("--check", action="store_true", help="only check the licences")
    arguments = parser.parse_args()

    found = metadata(arguments.manifest_path, arguments.platform, arguments.check)
    if arguments.check:
        allowed = set(tomllib.loads(arguments.deny.read_text(encoding="utf-8"))["licenses"]["allow"])
        refused = refusals(found["packages"], allowed)
        if refused:
            print("\n".join(refused), file=sys.stderr)
            count = "1 crate has" if len(refused) == 1 else f"{len(refused)} crates have"
            sys.exit(f"third_party_notices: {count} a licence that is not in the `allow` list of {arguments.deny}")
        print(f"the licences of {len(found['packages'])} crates are allowed by {arguments.deny}")
        return

    crates = linked_crates(found, arguments.package)
    text = notices(crates, arguments.package, arguments.platform)
    arguments.output.write_text(text, encoding="utf-8", newline="\n")
    print(f"{arguments.output}: {len(crates)} crates, {len(text.encode())} bytes")
    for crate in crates:
        if not licence_files(crate):
            owner = f"{crate['name']} {crate['version']}"
            print(f"{owner} comes without a licence file ({crate['license']})", file=sys.stderr)


if __name__ == "__main__":
    main()
