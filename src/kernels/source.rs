//! Shader sources: generated constants, shared files (each once) and one kernel, joined with a map from lines to files.
//!
//! Directives are comments: `//@use a, b` names files of `shaders/shared/`; `//@for i 0 COUNT … //@end` repeats its
//! lines with `$i` replaced, so that private arrays are indexed by constants and no loop counts against a driver's
//! limit; `//@back i 0 COUNT … //@end` does so from the last number to the first.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// Files of `shaders/shared/`.
const SHARED: [(&str, &str); 36] = [
    (
        "activation",
        include_str!("../../shaders/shared/activation.wgsl"),
    ),
    ("basis", include_str!("../../shaders/shared/basis.wgsl")),
    ("box", include_str!("../../shaders/shared/box.wgsl")),
    ("cubic", include_str!("../../shaders/shared/cubic.wgsl")),
    (
        "elimination",
        include_str!("../../shaders/shared/elimination.wgsl"),
    ),
    (
        "elimination_first",
        include_str!("../../shaders/shared/elimination_first.wgsl"),
    ),
    (
        "estimator",
        include_str!("../../shaders/shared/estimator.wgsl"),
    ),
    (
        "faddeeva",
        include_str!("../../shaders/shared/faddeeva.wgsl"),
    ),
    ("faces", include_str!("../../shaders/shared/faces.wgsl")),
    (
        "functions",
        include_str!("../../shaders/shared/functions.wgsl"),
    ),
    ("gamma", include_str!("../../shaders/shared/gamma.wgsl")),
    ("halves", include_str!("../../shaders/shared/halves.wgsl")),
    (
        "hyperbolic",
        include_str!("../../shaders/shared/hyperbolic.wgsl"),
    ),
    ("judge", include_str!("../../shaders/shared/judge.wgsl")),
    ("label", include_str!("../../shaders/shared/label.wgsl")),
    ("layer", include_str!("../../shaders/shared/layer.wgsl")),
    (
        "least_squares",
        include_str!("../../shaders/shared/least_squares.wgsl"),
    ),
    ("linear", include_str!("../../shaders/shared/linear.wgsl")),
    ("math", include_str!("../../shaders/shared/math.wgsl")),
    ("members", include_str!("../../shaders/shared/members.wgsl")),
    (
        "no_continuum",
        include_str!("../../shaders/shared/no_continuum.wgsl"),
    ),
    (
        "no_refinement",
        include_str!("../../shaders/shared/no_refinement.wgsl"),
    ),
    ("packed", include_str!("../../shaders/shared/packed.wgsl")),
    (
        "projection",
        include_str!("../../shaders/shared/projection.wgsl"),
    ),
    (
        "refinement",
        include_str!("../../shaders/shared/refinement.wgsl"),
    ),
    (
        "resampled_rows",
        include_str!("../../shaders/shared/resampled_rows.wgsl"),
    ),
    ("robust", include_str!("../../shaders/shared/robust.wgsl")),
    (
        "rotation",
        include_str!("../../shaders/shared/rotation.wgsl"),
    ),
    ("secant", include_str!("../../shaders/shared/secant.wgsl")),
    (
        "small_bounded",
        include_str!("../../shaders/shared/small_bounded.wgsl"),
    ),
    (
        "small_fit",
        include_str!("../../shaders/shared/small_fit.wgsl"),
    ),
    (
        "small_unbounded",
        include_str!("../../shaders/shared/small_unbounded.wgsl"),
    ),
    ("solve", include_str!("../../shaders/shared/solve.wgsl")),
    ("state", include_str!("../../shaders/shared/state.wgsl")),
    (
        "stored_rows",
        include_str!("../../shaders/shared/stored_rows.wgsl"),
    ),
    ("tree", include_str!("../../shaders/shared/tree.wgsl")),
];

/// Beginning of a line that asks for a feature of the language.
const ENABLE: &str = "enable ";

/// Generated declarations of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    text: String,
    unsigned: HashMap<String, usize>,
    /// A number that f32 cannot hold.
    pub bad: Option<String>,
}

impl Constants {
    /// Adds a WGSL `u32` constant, which bounds of unrolled loops may name.
    pub fn unsigned(&mut self, name: &str, value: usize) {
        let _ = writeln!(self.text, "const {name}: u32 = {value}u;");
        self.unsigned.insert(name.to_owned(), value);
    }

    /// Adds a WGSL `i32` constant.
    pub fn signed(&mut self, name: &str, value: i32) {
        let _ = writeln!(self.text, "const {name}: i32 = i32({value});");
    }

    /// Adds a WGSL `f32` constant, rounded from f64.
    pub fn float(&mut self, name: &str, value: f64) {
        let literal = self.literal(value);
        let _ = writeln!(self.text, "const {name}: f32 = {literal};");
    }

    /// Returns `value` as a WGSL f32 literal, and remembers the first one that is not finite, as an error.
    pub fn literal(&mut self, value: f64) -> String {
        let narrow = value as f32;
        if !narrow.is_finite() {
            self.bad
                .get_or_insert_with(|| format!("{value} does not fit an f32"));
        }
        format!("{narrow:?}f")
    }

    /// Appends a line of WGSL, which may be any declaration.
    pub fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// WGSL of the user's.
#[derive(Clone, Debug)]
pub struct UserCode {
    /// Name in messages.
    pub name: String,
    pub text: String,
}

/// A complete shader and where its lines come from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub text: String,
    lines: Vec<(String, usize)>,
}

impl Source {
    /// Joins the constants, the shared files in use, the `user` code and the kernel's text to one WGSL source.
    pub fn join(
        constants: &Constants,
        kernel: &str,
        text: &str,
        uses: &[&str],
        user: Option<&UserCode>,
    ) -> Source {
        let mut source = Source::default();
        let mut seen = HashSet::new();
        // these come before everything else
        for (line, enable) in (1..)
            .zip(text.lines())
            .filter(|(_, line)| line.starts_with(ENABLE))
        {
            source.lines.push((format!("shaders/{kernel}.wgsl"), line));
            source.text.extend([enable, "\n"]);
        }
        source.append("generated constants", &constants.text, constants);
        for name in uses {
            source.append_shared(name, constants, &mut seen);
        }
        source.append_uses(text, constants, &mut seen);
        if let Some(UserCode { name, text }) = user {
            // as it is: directives in the user's comments mean nothing
            source.lines.extend(
                (1..)
                    .zip(text.lines())
                    .map(|(line, _)| (name.clone(), line)),
            );
            text.lines()
                .for_each(|line| source.text.extend([line, "\n"]));
        }
        source.append(&format!("shaders/{kernel}.wgsl"), text, constants);
        source
    }

    /// Appends the shared files that the `//@use` lines of a text name, each one once.
    fn append_uses(&mut self, text: &str, constants: &Constants, seen: &mut HashSet<String>) {
        for names in text.lines().filter_map(|line| line.strip_prefix("//@use ")) {
            for name in names.split(',') {
                self.append_shared(name.trim(), constants, seen);
            }
        }
    }

    /// Appends a shared file after those that it uses itself, unless it is there already.
    fn append_shared(&mut self, name: &str, constants: &Constants, seen: &mut HashSet<String>) {
        if !seen.insert(name.to_owned()) {
            return;
        }
        let text = SHARED
            .iter()
            .find(|(other, _)| *other == name)
            .map_or("", |(_, text)| text);
        self.append_uses(text, constants, seen);
        self.append(&format!("shaders/shared/{name}.wgsl"), text, constants);
    }

    /// Appends the lines of a file without `enable` directives, with its marked loops unrolled.
    fn append(&mut self, file: &str, text: &str, constants: &Constants) {
        let own = (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.starts_with(ENABLE));
        let numbered: Vec<Line> = own
            .map(|(number, text)| Line {
                number,
                text: text.to_owned(),
            })
            .collect();
        for Line { number, text } in unroll(&numbered, &constants.unsigned) {
            self.text.push_str(&text);
            self.text.push('\n');
            self.lines.push((file.to_owned(), number));
        }
    }

    /// Returns the number of lines of the joined text before the first one of `file`.
    pub fn first_line(&self, file: &str) -> usize {
        self.lines
            .iter()
            .take_while(|(other, _)| other != file)
            .count()
    }

    /// Returns, as `FILE:LINE`, where line number `line` (from 1) of the joined text comes from.
    pub fn locate(&self, line: usize) -> String {
        match self.lines.get(line.wrapping_sub(1)) {
            Some((file, line)) => format!("{file}:{line}"),
            None => format!("line {line}"),
        }
    }
}

/// A line and its number in its file, from 1.
#[derive(Clone)]
struct Line {
    number: usize,
    text: String,
}

/// Returns the words of a line that opens a block, and whether it counts downwards: `//@for` and `//@back`.
fn opening(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let upwards = line.strip_prefix("//@for ").map(|words| (words, false));
    upwards.or_else(|| line.strip_prefix("//@back ").map(|words| (words, true)))
}

/// Repeats each block `//@for NAME FIRST LAST`, with `$NAME` replaced by every number from FIRST to before LAST, and
/// each `//@back` in the other order. Only these lines open blocks, so that `//@end` without one is left alone.
fn unroll(lines: &[Line], constants: &HashMap<String, usize>) -> Vec<Line> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let Some((words, downwards)) = opening(&lines[i].text) else {
            out.push(lines[i].clone());
            i += 1;
            continue;
        };
        let end = matching_end(lines, i);
        let words: Vec<&str> = words.split_whitespace().collect();
        if let [variable, first, last] = words[..] {
            let name = format!("${variable}");
            let mut values: Vec<usize> =
                (bound(first, constants)..bound(last, constants)).collect();
            if downwards {
                values.reverse();
            }
            for value in values {
                let text = |line: &Line| line.text.replace(&name, &value.to_string());
                let body = lines[i + 1..end].iter().map(|line| Line {
                    number: line.number,
                    text: text(line),
                });
                let body: Vec<Line> = body.collect();
                out.extend(unroll(&body, constants));
            }
        }
        i = end + 1;
    }
    out
}

/// Returns the index of the `//@end` line of the loop that begins at line `start`; all lines' number if there is none.
fn matching_end(lines: &[Line], start: usize) -> usize {
    let mut depth = 0;
    for (i, line) in lines.iter().enumerate().skip(start) {
        if opening(&line.text).is_some() {
            depth += 1;
        } else if line.text.trim() == "//@end" {
            depth -= 1;
            if depth == 0 {
                return i;
            }
        }
    }
    lines.len()
}

/// Evaluates a loop's bound, a sum of numbers and names of constants; unknown names count as 0.
fn bound(text: &str, constants: &HashMap<String, usize>) -> usize {
    text.split('+')
        .map(|term| {
            term.parse()
                .unwrap_or_else(|_| constants.get(term).copied().unwrap_or(0))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrolls_nested_blocks_and_keeps_the_lines() {
        let mut constants = Constants::default();
        constants.unsigned("N", 2);
        let text = "a\n//@for i 0 N\n//@for j 0 $i+1\nb$i$ju\n//@end\n//@end\nc\n";
        let source = Source::join(&constants, "k", text, &[], None);
        assert_eq!(source.text, "const N: u32 = 2u;\na\nb00u\nb10u\nb11u\nc\n");
        assert_eq!(source.locate(4), "shaders/k.wgsl:4");
        assert_eq!(source.locate(6), "shaders/k.wgsl:7");
    }

    #[test]
    fn counts_downwards_inside_and_outside_of_other_blocks() {
        let mut constants = Constants::default();
        constants.unsigned("N", 3);
        let text = "//@back i 0 N\na$i\n//@for k $i+1 N\nb$i$k\n//@end\n//@end\nc\n";
        let source = Source::join(&constants, "k", text, &[], None);
        assert_eq!(
            source.text,
            "const N: u32 = 3u;\na2\na1\nb12\na0\nb01\nb02\nc\n"
        );
    }

    #[test]
    fn features_are_enabled_before_anything_else() {
        let mut constants = Constants::default();
        constants.unsigned("N", 2);
        let source = Source::join(
            &constants,
            "k",
            "// a comment\nenable f16;\nlet x = N;\n",
            &[],
            None,
        );
        assert_eq!(
            source.text,
            "enable f16;\nconst N: u32 = 2u;\n// a comment\nlet x = N;\n"
        );
        assert_eq!(
            [1, 3, 4].map(|line| source.locate(line)),
            [2, 1, 3].map(|line| format!("shaders/k.wgsl:{line}"))
        );
    }

    #[test]
    fn every_shared_file_is_known() -> std::io::Result<()> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders/shared");
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let stem = path
                .file_stem()
                .and_then(|s| s.to_str())
                .unwrap_or_default();
            assert!(
                SHARED.iter().any(|(name, _)| *name == stem),
                "{stem} is not in SHARED"
            );
        }
        Ok(())
    }
}
