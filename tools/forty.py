"""Draws forty functions of the source, to see whether a stranger understands them.

usage: forty.py [--bodies] [--answers] [SEED [COUNT]]     (default: the hash of the commit, 40)

Prints each function's signature and the first sentence of its documentation, and nothing else. A reader who has never seen
the source says what each does; with --answers the bodies follow, by which the reader's words are judged. With --bodies
the functions have 20 to 60 lines, and their signatures and bodies are printed without documentation: a reader says what
each does and why. With --answers the documentation follows, and where the function stands.
"""
import pathlib
import random
import re
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUNCTION = re.compile(r"((?:^[ \t]*///[^\n]*\n)*)((?:^[ \t]*#\[[^\n]*\n)*)^[ \t]*((?:pub(?:\([\w ]+\))? )?(?:const |async )*fn (?:\[[^\[\]{}]*\]|[^{};]|\{[^{}]*\}(?=:))*)[{;]", re.M)
TESTS = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\n(?:#\[[^\n]*\n)*(?:pub(?:\([\w ]+\))? )?mod \w+ \{", re.M)
OWNER = re.compile(r"^(?:impl|trait|pub trait|pub\(crate\) trait)\b[^{]*", re.M)


LENGTHS_OF_BODIES = range(20, 61)


class Function(typing.NamedTuple):
    """A function with its owner (an impl or a trait), its documentation and the first sentence of that."""

    path: pathlib.Path
    owner: str
    documentation: str
    sentence: str
    signature: str
    body: str


def end_of_block(text, start):
    """The place after the brace that closes the first one from `start` on."""
    depth = 0
    for place in range(text.index("{", start), len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def without_tests(text):
    """The source without its modules of tests."""
    while found := TESTS.search(text):
        text = text[: found.start()] + text[end_of_block(text, found.start()) :]
    return text


def signature(found):
    """The signature in one line."""
    return re.sub(r"\s+", " ", found[3]).strip()


def functions(path):
    """The functions of a file."""
    text = without_tests(path.read_text())
    owners = [(found.start(), end_of_block(text, found.start()), found[0].strip()) for found in OWNER.finditer(text)]
    for found in FUNCTION.finditer(text):
        doc = " ".join(line.strip().removeprefix("///").strip() for line in found[1].strip().split("\n"))
        doc = re.split(r"(?<=\.)\s", doc)[0]
        owner = next((name for start, end, name in owners if start < found.start() < end), "")
        if " for " in owner or found[0].endswith(";") or "$" in signature(found):
            continue  # the trait, or a macro, has the words
        body = text[found.start(3) : end_of_block(text, found.end() - 1)]
        yield Function(path.relative_to(ROOT), owner, found[1].strip(), doc, signature(found), body)


def main():
    answers, bodies = "--answers" in sys.argv, "--bodies" in sys.argv
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    files = [path for folder in ("src", "crates/cli/src") for path in sorted((ROOT / folder).rglob("*.rs"))]
    files = [path for path in files if "tests" not in path.stem]
    every = [function for path in files for function in functions(path)]
    if bodies:
        every = [function for function in every if function.body.count("\n") + 1 in LENGTHS_OF_BODIES]
    seed, count = given[0] if given else commit, int(given[1]) if len(given) > 1 else 40
    drawn = random.Random(seed).sample(every, min(len(every), count))
    print(f"seed {seed}, {len(every)} functions\n")
    for number, function in enumerate(drawn, 1):
        owner = f"{function.owner}: " if function.owner else ""
        if bodies:
            print(f"{number}. {owner.removesuffix(': ')}\n{function.body}\n")
        else:
            print(f"{number}. {owner}{function.signature}\n   {function.sentence or '(no documentation)'}")
        if answers:
            print(f"{function.path}\n{function.documentation or '(no documentation)'}\n" if bodies else f"{function.body}\n")


if __name__ == "__main__":
    main()
