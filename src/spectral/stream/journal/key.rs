//! Comparison of the keys of two runs. A key has everything on which the rows depend, as text: the instruction set of
//! the processor, and the inputs.
//!
//! Sums have as many partial sums as the processor's vectors have lanes, and only some processors have fused
//! multiply-adds. Rows of two instruction sets therefore differ in their last bits, and a table must not mix them.

/// Beginning of the line that names the instruction set.
const INSTRUCTION_SET: &str = "instruction set = ";

/// Everything on which rows depend, except the spectra.
#[derive(Debug, PartialEq, Eq)]
pub struct JournalKey<'a> {
    /// Instruction set of the processor.
    pub instruction_set: &'a str,
    /// Inputs of the rows, one per line.
    pub inputs: &'a str,
}

impl JournalKey<'_> {
    /// Reads the text of a key.
    pub fn parse(text: &str) -> JournalKey<'_> {
        let lines = text.strip_prefix(INSTRUCTION_SET).unwrap_or(text);
        let (instruction_set, inputs) = lines.split_once('\n').unwrap_or((lines, ""));
        JournalKey {
            instruction_set,
            inputs,
        }
    }

    /// Returns the text of the key.
    pub fn text(&self) -> String {
        format!("{INSTRUCTION_SET}{}\n{}", self.instruction_set, self.inputs)
    }

    /// Returns the reason why a run with the key `now` cannot continue with the rows of this one; `None` if it can.
    pub fn explain_mismatch(&self, now: &JournalKey) -> Option<String> {
        if self.inputs != now.inputs {
            return Some(format!(
                "it is of another run: {}",
                describe_difference(self.inputs, now.inputs)
            ));
        }
        let before = self.instruction_set;
        let now = now.instruction_set;
        if before == now {
            return None;
        }
        Some(format!(
            "its rows were computed with the instruction set {before}, and this processor has {now}, which rounds \
             sums in another way: resume the run on a processor with {before}, or remove this file to begin anew"
        ))
    }
}

/// Returns a description of the first line in which two keys differ.
fn describe_difference(before: &str, now: &str) -> String {
    let [mut lines_before, mut lines_now] =
        [before, now].map(|key| key.lines().filter(|line| !line.trim().is_empty()));
    loop {
        let before = lines_before.next();
        let now = lines_now.next();
        if before.is_none() && now.is_none() {
            return "empty lines of the model file differ".into();
        }
        if before != now {
            return format!(
                "it has {} where this one has {}",
                quote_line(before),
                quote_line(now)
            );
        }
    }
}

/// Returns a line in backquotes, shortened to 120 characters, for a message; without a line, `nothing`.
fn quote_line(line: Option<&str>) -> String {
    /// Maximum number of characters of a line that are quoted.
    const MAX_QUOTED_CHARACTERS: usize = 120;
    match line {
        Some(line) if line.chars().count() > MAX_QUOTED_CHARACTERS => {
            format!(
                "`{}…`",
                line.chars().take(MAX_QUOTED_CHARACTERS).collect::<String>()
            )
        }
        Some(line) => format!("`{line}`"),
        None => "nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::instruction_set;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        for (instruction_set, inputs) in [("x86_64-v3", "a = 1\nb = 2"), ("aarch64-neon", "")] {
            let key = JournalKey {
                instruction_set,
                inputs,
            };
            assert_eq!(JournalKey::parse(&key.text()), key);
        }
        let name = instruction_set();
        assert!(
            name.starts_with(std::env::consts::ARCH) && !name.contains(['(', ' ', '\n']),
            "{name}"
        );
    }
}
