//! Shader sources: generated constants, shared files (each once) and one kernel, joined with a map from lines to files.
//!
//! Directives are comments: `//@use a, b` names files of `shaders/shared/`; `//@for i 0 COUNT … //@end` repeats its
//! lines with `$i` replaced, so that private arrays are indexed by constants and no loop counts against a driver's
//! limit; `//@back i 0 COUNT … //@end` does so from the last number to the first. A shader whose constants say so keeps
//! them as loops, with a count that compilers do not know: drivers of software would take seconds to unroll `step`.

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
    (
        "label_rows",
        include_str!("../../shaders/shared/label_rows.wgsl"),
    ),
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
    ("state", include_str!("../../shaders/shared/state.wgsl")),
    (
        "step_member",
        include_str!("../../shaders/shared/step_member.wgsl"),
    ),
    (
        "stored_rows",
        include_str!("../../shaders/shared/stored_rows.wgsl"),
    ),
    ("tree", include_str!("../../shaders/shared/tree.wgsl")),
];

/// Beginning of a line that enables an extension of WGSL.
const ENABLE: &str = "enable ";

/// Generated declarations of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    text: String,
    unsigned: HashMap<String, usize>,
    /// True if the shader's marked loops stay loops. It then needs a function `at_run_time(count)`.
    pub keeps_loops: bool,
    /// Message about the first number that f32 cannot hold.
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

/// A user's WGSL.
#[derive(Clone, Debug)]
pub struct UserCode {
    /// Name in messages.
    pub name: String,
    pub text: String,
}

/// Complete WGSL of a shader, and the file and line that each of its lines comes from.
#[derive(Clone, Debug, Default)]
pub struct WgslSource {
    pub text: String,
    /// By line of the text: its file, and its number there, from 1.
    lines: Vec<(String, usize)>,
}

impl WgslSource {
    /// Joins the constants, the shared files in use, the `user` code and the kernel's text to one WGSL source.
    pub fn join(
        constants: &Constants,
        kernel: &str,
        text: &str,
        uses: &[&str],
        user: Option<&UserCode>,
    ) -> WgslSource {
        let mut source = WgslSource::default();
        let file = format!("shaders/{kernel}.wgsl");
        // 1. WGSL wants its `enable` directives before everything else.
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with(ENABLE) {
                source.push_line(line, &file, number);
            }
        }
        // 2. The constants, and the shared files, each after those that it uses.
        source.append_file("generated constants", &constants.text, constants);
        let mut appended = HashSet::new();
        for name in uses {
            source.append_shared(name, constants, &mut appended);
        }
        source.append_uses(text, constants, &mut appended);
        // 3. The user's code, as it is: directives in its comments mean nothing.
        if let Some(UserCode { name, text }) = user {
            for (number, line) in (1..).zip(text.lines()) {
                source.push_line(line, name, number);
            }
        }
        // 4. The kernel.
        source.append_file(&file, text, constants);
        source
    }

    /// Appends a line, which comes from line `number` of `file`.
    fn push_line(&mut self, line: &str, file: &str, number: usize) {
        self.text.push_str(line);
        self.text.push('\n');
        self.lines.push((file.to_owned(), number));
    }

    /// Appends the shared files that the `//@use` lines of a text name, each one once.
    fn append_uses(&mut self, text: &str, constants: &Constants, appended: &mut HashSet<String>) {
        for names in text.lines().filter_map(|line| line.strip_prefix("//@use ")) {
            for name in names.split(',') {
                self.append_shared(name.trim(), constants, appended);
            }
        }
    }

    /// Appends a shared file after those that it uses itself, unless it is appended already.
    fn append_shared(&mut self, name: &str, constants: &Constants, appended: &mut HashSet<String>) {
        if !appended.insert(name.to_owned()) {
            return;
        }
        let text = SHARED
            .iter()
            .find(|(stem, _)| *stem == name)
            .map_or("", |(_, text)| text);
        self.append_uses(text, constants, appended);
        self.append_file(&format!("shaders/shared/{name}.wgsl"), text, constants);
    }

    /// Appends the lines of a file without `enable` directives, with its marked loops unrolled.
    fn append_file(&mut self, file: &str, text: &str, constants: &Constants) {
        let lines: Vec<NumberedLine> = (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.starts_with(ENABLE))
            .map(|(number, text)| NumberedLine {
                number,
                text: text.to_owned(),
            })
            .collect();
        for NumberedLine { number, text } in expand_loops(&lines, constants) {
            self.push_line(&text, file, number);
        }
    }

    /// Returns the number of lines of the joined text before the first one of `file`.
    pub fn first_line(&self, file: &str) -> usize {
        self.lines
            .iter()
            .take_while(|(origin, _)| origin != file)
            .count()
    }

    /// Returns the origin, as `FILE:LINE`, of line number `line` (from 1) of the joined text.
    pub fn locate(&self, line: usize) -> String {
        match self.lines.get(line.wrapping_sub(1)) {
            Some((file, line)) => format!("{file}:{line}"),
            None => format!("line {line}"),
        }
    }
}

/// A line and its number in its file, from 1.
#[derive(Clone)]
struct NumberedLine {
    number: usize,
    text: String,
}

/// Returns the words of a line that opens a block, and whether it counts downwards: `//@for` and `//@back`.
fn parse_opening(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    if let Some(words) = line.strip_prefix("//@for ") {
        return Some((words, false));
    }
    line.strip_prefix("//@back ").map(|words| (words, true))
}

/// A marked loop.
struct MarkedLoop<'a> {
    variable: &'a str,
    first: &'a str,
    last: &'a str,
    is_downwards: bool,
}

impl MarkedLoop<'_> {
    /// Repeats the body with `$NAME` replaced by every number from FIRST to before LAST, or in the other order.
    fn unroll(&self, body: &[NumberedLine], constants: &Constants) -> Vec<NumberedLine> {
        let [first, last] =
            [self.first, self.last].map(|bound| evaluate_bound(bound, &constants.unsigned));
        let mut values: Vec<usize> = (first..last).collect();
        if self.is_downwards {
            values.reverse();
        }
        let repeat = |value: usize| {
            let body = self.replace_variable(body, &value.to_string(), &format!("{value}u"));
            expand_loops(&body, constants)
        };
        values.into_iter().flat_map(repeat).collect()
    }

    /// Turns the lines of the block into a loop of WGSL.
    fn keep(
        &self,
        body: &[NumberedLine],
        constants: &Constants,
        number: usize,
    ) -> Vec<NumberedLine> {
        let MarkedLoop { variable, .. } = self;
        let [first, last] =
            [self.first, self.last].map(|bound| write_bound(bound, &constants.unsigned));
        let opening = if self.is_downwards {
            format!("for (var {variable} = {last}; {variable} > {first};) {{ {variable}--;")
        } else {
            format!("for (var {variable} = {first}; {variable} < {last}; {variable}++) {{")
        };
        let line = |text: String| NumberedLine { number, text };
        let body = self.replace_variable(body, variable, variable);
        let mut lines = vec![line(opening)];
        lines.extend(expand_loops(&body, constants));
        lines.push(line("}".to_owned()));
        lines
    }

    /// Returns the body with `$NAME` replaced by `value`, and `$NAMEu` by `unsigned`.
    fn replace_variable(
        &self,
        body: &[NumberedLine],
        value: &str,
        unsigned: &str,
    ) -> Vec<NumberedLine> {
        let placeholder = format!("${}", self.variable);
        let replace = |line: &NumberedLine| NumberedLine {
            number: line.number,
            text: line
                .text
                .replace(&format!("{placeholder}u"), unsigned)
                .replace(&placeholder, value),
        };
        body.iter().map(replace).collect()
    }
}

/// Unrolls each block `//@for NAME FIRST LAST … //@end` or `//@back …`, or keeps it as a loop where the constants say
/// so. Only these lines open blocks, so that `//@end` without one is left alone.
fn expand_loops(lines: &[NumberedLine], constants: &Constants) -> Vec<NumberedLine> {
    let mut expanded = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let Some((words, is_downwards)) = parse_opening(&lines[i].text) else {
            expanded.push(lines[i].clone());
            i += 1;
            continue;
        };
        let end = matching_end(lines, i);
        let words: Vec<&str> = words.split_whitespace().collect();
        if let [variable, first, last] = words[..] {
            let marked_loop = MarkedLoop {
                variable,
                first,
                last,
                is_downwards,
            };
            let body = &lines[i + 1..end];
            expanded.extend(if constants.keeps_loops {
                marked_loop.keep(body, constants, lines[i].number)
            } else {
                marked_loop.unroll(body, constants)
            });
        }
        i = end + 1;
    }
    expanded
}

/// Returns the index of the `//@end` line of the loop that begins at line `start`; the number of lines if there is
/// none.
fn matching_end(lines: &[NumberedLine], start: usize) -> usize {
    let mut depth = 0;
    for (i, line) in lines.iter().enumerate().skip(start) {
        if parse_opening(&line.text).is_some() {
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
fn evaluate_bound(text: &str, constants: &HashMap<String, usize>) -> usize {
    text.split('+')
        .map(|term| {
            term.parse()
                .unwrap_or_else(|_| constants.get(term).copied().unwrap_or(0))
        })
        .sum()
}

/// Writes a loop's bound in WGSL. Compilers do not know a constant's value there.
fn write_bound(text: &str, constants: &HashMap<String, usize>) -> String {
    let write_term = |term: &str| {
        if term.parse::<usize>().is_ok() {
            format!("{term}u")
        } else if constants.contains_key(term) {
            format!("at_run_time({term})")
        } else {
            term.to_owned()
        }
    };
    let terms: Vec<String> = text.split('+').map(write_term).collect();
    terms.join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_loops_have_counts_that_compilers_do_not_know() {
        let mut constants = Constants::default();
        constants.unsigned("N", 2);
        constants.keeps_loops = true;
        let text = "//@for i 0 N\n//@back j $i+1 N\nb[$i][$ju];\n//@end\n//@end\n";
        let source = WgslSource::join(&constants, "k", text, &[], None);
        let kept = "const N: u32 = 2u;\nfor (var i = 0u; i < at_run_time(N); i++) {\n\
                    for (var j = at_run_time(N); j > i + 1u;) { j--;\nb[i][j];\n}\n}\n";
        assert_eq!(source.text, kept);
        assert_eq!(source.locate(4), "shaders/k.wgsl:3");
    }

    #[test]
    fn nested_loops_are_unrolled_and_lines_keep_their_origin() {
        let mut constants = Constants::default();
        constants.unsigned("N", 2);
        let text = "a\n//@for i 0 N\n//@for j 0 $i+1\nb$i$ju\n//@end\n//@end\nc\n";
        let source = WgslSource::join(&constants, "k", text, &[], None);
        assert_eq!(source.text, "const N: u32 = 2u;\na\nb00u\nb10u\nb11u\nc\n");
        assert_eq!(source.locate(4), "shaders/k.wgsl:4");
        assert_eq!(source.locate(6), "shaders/k.wgsl:7");
    }

    #[test]
    fn loops_count_downwards_inside_and_outside_of_other_loops() {
        let mut constants = Constants::default();
        constants.unsigned("N", 3);
        let text = "//@back i 0 N\na$i\n//@for k $i+1 N\nb$i$k\n//@end\n//@end\nc\n";
        let source = WgslSource::join(&constants, "k", text, &[], None);
        assert_eq!(
            source.text,
            "const N: u32 = 3u;\na2\na1\nb12\na0\nb01\nb02\nc\n"
        );
    }

    #[test]
    fn enable_directives_come_first() {
        let mut constants = Constants::default();
        constants.unsigned("N", 2);
        let source = WgslSource::join(
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
    fn every_shared_file_is_in_the_list() -> std::io::Result<()> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders/shared");
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            assert!(
                SHARED.iter().any(|(name, _)| *name == stem),
                "{stem} is not in SHARED"
            );
        }
        Ok(())
    }
}
