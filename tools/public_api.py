#!/usr/bin/env python3
"""Writes the public interface of popfit and popfit-argmin to docs/public_api.txt, or compares it with that file.

    tools/public_api.py            writes docs/public_api.txt
    tools/public_api.py --check    writes nothing, prints the difference, and exits with 1 if there is one

Each line is one item that a user can reach, at its shortest public path, with the default features. Implementations of automatic traits
and blanket ones of other crates are left out, and so are items with #[doc(hidden)] and those that only `popfit::low_level` has. A struct
with private fields ends with `{ .. }` or `(_)`, a trait's function that has a default body with `{ … }`.

`cargo rustdoc` describes the crates in JSON, which is an unstable option: RUSTC_BOOTSTRAP=1 allows it on a stable compiler. Only rustdoc
sees that variable, since build scripts of dependencies ask for it, and everything would be compiled again. The JSON depends on the
compiler, so `--check` compares nothing under another one than that of the file's first line.

Needs Python 3.11, cargo and a Unix system. Tests: python3 -m doctest tools/public_api.py
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "docs/public_api.txt"
UNCOVERED = "popfit::low_level"
KNOWN_FORMATS = {57}
KEYWORDS = {"assoc_const": "const", "assoc_type": "type", "constant": "const", "module": "mod", "type_alias": "type"}
# What a reader takes for the standard library's without a path.
PRELUDE = set("""Any Arc AsRef Box Clone Copy Debug Default Display Drop Eq ExactSizeIterator Extend Fn FnMut FnOnce From FromIterator
FromStr Hash Into IntoIterator Iterator Option Ord PartialEq PartialOrd Path PathBuf Range RangeInclusive Send String Sync Vec""".split())


def run(*command: str, **environment: str) -> str:
    """Returns what a command writes to its standard output, or ends the program if the command fails."""
    found = subprocess.run(command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False)
    return found.stdout if found.returncode == 0 else sys.exit(f"public_api: {' '.join(command[:2])} failed; its message is above")


def describe(package: str) -> dict:
    """Returns rustdoc's description of a package's library."""
    with tempfile.TemporaryDirectory() as folder:
        rustdoc = Path(folder) / "rustdoc"
        rustdoc.write_text('#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec "$POPFIT_RUSTDOC" "$@"\n', encoding="utf-8")
        rustdoc.chmod(0o755)
        command = f"cargo rustdoc --release --locked -p {package} --lib -- -Z unstable-options --output-format json"
        run(*command.split(), RUSTDOC=str(rustdoc), POPFIT_RUSTDOC=os.environ.get("RUSTDOC", "rustdoc"))
    target = json.loads(run("cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"))["target_directory"]
    found = json.loads((Path(target) / "doc" / f"{package.replace('-', '_')}.json").read_text(encoding="utf-8"))
    if found["format_version"] not in KNOWN_FORMATS:
        sys.exit(f"public_api: rustdoc's JSON has the unknown format {found['format_version']}; adapt tools/public_api.py and KNOWN_FORMATS")
    return found


def join(words, left="", right="", by=", ") -> str:
    """Joins words between two brackets, or returns nothing for no words.

    >>> join(["'a", "T"], "<", ">"), join([], "<", ">")
    ("<'a, T>", '')
    """
    words = [word for word in words if word]
    return left + by.join(words) + right if words else ""


def mentioned(tree) -> set:
    """Returns the ids of the types and traits that a part of the description mentions."""
    if isinstance(tree, dict):
        return set().union({tree["id"]} if "path" in tree else (), *map(mentioned, tree.values()))
    return set().union(*map(mentioned, tree)) if isinstance(tree, list) else set()


class Crate:
    """The public items of one crate as lines of Rust."""

    def __init__(self, description: dict, public: dict):
        """Finds the items' public paths. `public` has those of all crates by the path of the definition, and gets this crate's."""
        self.index, self.paths = description["index"], description["paths"]
        self.names, self.lines, self.public = {}, [], public
        self.visit(description["root"], self.index[str(description["root"])]["name"], ())
        public |= {"::".join(self.paths[str(key)]["path"]): name for key, name in self.names.items() if str(key) in self.paths}

    def visit(self, key, path: str, above: tuple) -> None:
        """Notes the shortest path of an item and of what is below it."""
        if (item := self.index.get(str(key))) is None or key in above:
            return
        kind, inner = next(iter(item["inner"].items()))
        if kind == "use":
            parent = path.rsplit("::", 1)[0]
            if inner["is_glob"]:
                return None if path.startswith(UNCOVERED) else sys.exit(f"public_api: teach tools/public_api.py what `pub use {inner['source']}::*` exports")
            if self.paths.get(str(inner["id"]), {"crate_id": 0})["crate_id"] and not path.startswith(UNCOVERED):
                self.add(f"{parent}::{inner['name']}", f"pub use {inner['source']} as {parent}::{inner['name']}")
            return self.visit(inner["id"], f"{parent}::{inner['name']}", (*above, key))
        self.names[key] = min(sorted([self.names.get(key, path), path]), key=len)
        for child in inner.get("items", []) if kind == "module" else []:
            self.visit(child, f"{path}::{self.index.get(str(child), {}).get('name')}", (*above, key))

    def covered(self, key) -> bool:
        return key in self.names and not f"{self.names[key]}::".startswith(f"{UNCOVERED}::")

    def path(self, reference: dict) -> str:
        """Returns a type's or trait's public path with its arguments; one that users cannot reach has the path of its definition."""
        parts = self.paths.get(str(reference["id"]), {}).get("path", [reference["path"]])
        name = self.names.get(reference["id"]) or self.public.get("::".join(parts)) or "::".join(parts)
        name = name.replace("serde_core::ser::", "serde::").replace("serde_core::de::", "serde::")
        if parts[0] in ("std", "core", "alloc"):
            name = parts[-1] if parts[-1] in PRELUDE or parts[-2:] == ["result", "Result"] else "::".join(["std", *parts[1:]])
        kind, inner = next(iter((reference["args"] or {"angle_bracketed": {"args": [], "constraints": []}}).items()))
        if kind == "parenthesized":
            return f"{name}({', '.join(map(self.type, inner['inputs']))}){self.typed(' -> ', inner['output'])}"
        words = [self.argument(argument) for argument in inner["args"]]
        for constraint in inner["constraints"]:
            kind, value = next(iter(constraint["binding"].items()))
            words.append(constraint["name"] + (f" = {self.argument(value)}" if kind == "equality" else f": {self.bounds(value)}"))
        return name + join(words, "<", ">")

    def argument(self, argument) -> str:
        kind, inner = next(iter(argument.items()))
        return inner if kind == "lifetime" else self.type(inner) if kind == "type" else inner["value"] or inner["expr"]

    def typed(self, sign: str, tree) -> str:
        return sign + self.type(tree) if tree else ""

    def bound(self, bound) -> str:
        kind, inner = next(iter(bound.items()))
        if kind == "trait_bound":
            binder = join([parameter["name"] for parameter in inner["generic_params"]], "for<", "> ")
            return binder + "?" * (inner.get("modifier") == "maybe") + self.path(inner["trait"])
        return inner if kind == "outlives" else f"use<{', '.join(next(iter(word.values())) for word in inner)}>"

    def bounds(self, bounds, sign="") -> str:
        return join(map(self.bound, bounds), sign, by=" + ")

    def type(self, tree) -> str:
        """Returns a type in Rust's notation."""
        kind, inner = next(iter(tree.items())) if isinstance(tree, dict) else (tree, None)
        notations = {
            "infer": lambda: "_",
            "generic": lambda: inner,
            "primitive": lambda: "!" if inner == "never" else inner,
            "resolved_path": lambda: self.path(inner),
            "borrowed_ref": lambda: "&" + join([inner["lifetime"], inner["is_mutable"] and "mut", self.type(inner["type"])], by=" "),
            "slice": lambda: f"[{self.type(inner)}]",
            "array": lambda: f"[{self.type(inner['type'])}; {inner['len']}]",
            "tuple": lambda: f"({', '.join(map(self.type, inner))}{',' * (len(inner) == 1)})",
            "impl_trait": lambda: f"impl {self.bounds(inner)}",
            "dyn_trait": lambda: "dyn " + join([self.bound({"trait_bound": t}) for t in inner["traits"]] + [inner["lifetime"]], by=" + "),
            "qualified_path": lambda: f"{self.type(inner['self_type'])}::{inner['name']}",
        }
        return notations[kind]() if kind in notations else sys.exit(f"public_api: teach tools/public_api.py the type `{kind}`")

    def generics(self, generics) -> tuple[str, str]:
        """Returns the parameters in angle brackets, and the where clause."""
        words, where = [], []
        for parameter in generics["params"]:
            kind, inner = next(iter(parameter["kind"].items()))
            bounds = self.bounds(inner.get("bounds", []), ": ") + join(inner.get("outlives", []), ": ", by=" + ")
            word = "const " * (kind == "const") + parameter["name"] + bounds + self.typed(": ", inner.get("type"))
            words.append("" if inner.get("is_synthetic") else word + self.typed(" = ", inner.get("default")))
        for predicate in generics["where_predicates"]:
            inner = predicate.get("bound_predicate") or sys.exit(f"public_api: teach tools/public_api.py the clause {predicate}")
            where.append(self.type(inner["type"]) + self.bounds(inner["bounds"], ": "))
        return join(words, "<", ">"), join(where, " where ")

    def add(self, path: str, line: str, attributes=()) -> None:
        """Adds a line, which is sorted by the path of its item."""
        marks = [f"#[{name}]" for name in ("non_exhaustive", "must_use") if name in attributes or {name: {"reason": None}} in attributes]
        self.lines.append((path.split("::"), line.startswith(("impl", "unsafe impl")), join([*marks, line], by=" ")))

    def write(self, key, path: str) -> None:
        """Adds the lines of an item and of its members; those of the private and hidden ones are missing."""
        if (item := self.index.get(str(key))) is None:
            return
        kind, inner = next(iter(item["inner"].items()))
        parameters, where = self.generics(inner["generics"]) if "generics" in inner else ("", "")
        line, members = f"pub {KEYWORDS.get(kind, kind)} {path}{parameters}", []
        shape, fields = next(iter(inner["kind"].items())) if isinstance(inner.get("kind"), dict) else ("unit", [])
        if kind == "function":
            words = join([word for word in ("const", "async", "unsafe") if inner["header"][f"is_{word}"]] + ["fn"], by=" ")
            inputs = [f"{name}: {self.type(tree)}" for name, tree in inner["sig"]["inputs"]]
            inputs = [{"self: Self": "self", "self: &Self": "&self", "self: &mut Self": "&mut self"}.get(each, each) for each in inputs]
            line = f"pub {words} {path}{parameters}({', '.join(inputs)}){self.typed(' -> ', inner['sig']['output'])}{where}"
            line += " { … }" * (item["visibility"] == "default" and inner["has_body"])
        elif kind == "struct":
            members = fields["fields"] if shape == "plain" else [field for field in fields if field is not None]
            line += where + " { .. }" * (shape == "plain" and fields["has_stripped_fields"]) + "(_)" * (shape == "tuple" and None in fields)
        elif kind in ("enum", "trait"):
            members, line = inner.get("variants", inner.get("items")), line + self.bounds(inner.get("bounds", []), ": ") + where
        elif kind == "variant":
            fields = [self.index[str(field)] for field in (fields["fields"] if shape == "struct" else fields)]
            types = [self.type(field["inner"]["struct_field"]) for field in fields]
            types = [f"{field['name']}: {tree}" for field, tree in zip(fields, types)] if shape == "struct" else types
            line = f"pub {path}" + join(types, *((" { ", " }") if shape == "struct" else ("(", ")")))
        elif kind == "struct_field":
            line = f"pub {path}: {self.type(inner)}"
        elif kind != "module":
            line += self.bounds(inner.get("bounds", []), ": ") + self.typed(": " if "const" in kind else " = ", inner["type"])
        self.add(path, line, item["attrs"])
        own = [self.index[str(block)]["inner"]["impl"] for block in inner.get("impls", []) if str(block) in self.index]
        for member in members + [each for block in own if block["trait"] is None for each in block["items"]]:
            self.write(member, f"{path}::{self.index.get(str(member), {}).get('name')}")

    def write_implementations(self) -> None:
        """Adds the implementations of traits that concern covered items alone."""
        for item in self.index.values():
            block = item["inner"].get("impl")
            if not block or not block["trait"] or block["is_synthetic"] or block["blanket_impl"] or "Structural" in block["trait"]["path"]:
                continue
            own = {key for key in mentioned([block["trait"], block["for"]]) if self.paths.get(str(key), {"crate_id": 0})["crate_id"] == 0}
            if own and all(map(self.covered, own)):
                parameters, where = self.generics(block["generics"])
                owner = self.names.get(block["for"].get("resolved_path", block["trait"])["id"]) or min(self.names[key] for key in own)
                types = [(item["name"], item["inner"].get("assoc_type")) for key in block["items"] if (item := self.index.get(str(key)))]
                where += join([f"{name} = {self.type(given['type'])}" for name, given in types if given], " { ", " }")
                self.add(owner, f"{'unsafe ' * block['is_unsafe']}impl{parameters} {self.path(block['trait'])} for {self.type(block['for'])}" + where)


def snapshot(version: str) -> str:
    """Returns the text of the snapshot."""
    lines, public = [], {}
    for package in ("popfit", "popfit-argmin"):
        crate = Crate(describe(package), public)
        for key in filter(crate.covered, crate.names):
            crate.write(key, crate.names[key])
        crate.write_implementations()
        lines += [line for *_, line in sorted(crate.lines)]
    return "\n".join([version, f"# tools/public_api.py writes this file. {UNCOVERED} exists, too, and is not covered.", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with docs/public_api.txt and write nothing")
    check = parser.parse_args().check
    version = f"# {run('rustc', '--version').strip()}"
    old = SNAPSHOT.read_text(encoding="utf-8") if SNAPSHOT.exists() else ""
    if check and old and old.splitlines()[0] != version:
        return print(f"public_api: docs/public_api.txt is of {old.splitlines()[0][2:]}, and this is {version[2:]}: nothing is compared")
    new = snapshot(version)
    if not check:
        SNAPSHOT.write_text(new, encoding="utf-8")
    elif new != old:
        print(*difflib.unified_diff(old.splitlines(), new.splitlines(), "docs/public_api.txt", "the code", lineterm=""), sep="\n")
        sys.exit("public_api: the public interface has changed. If that is meant, run tools/public_api.py and commit docs/public_api.txt.")


if __name__ == "__main__":
    main()
