//! Comparison of what the rows of two runs depend on, which a journal holds as text: the instruction set of the
//! processor, and the inputs.
//!
//! Sums go over as many lanes as the processor's vectors have, and only some processors have fused multiply-adds. Rows
//! of two instruction sets therefore differ in their last bits, and a table must not mix them.

/// Beginning of the line that names the instruction set.
const INSTRUCTION_SET: &str = "instruction set = ";

/// All on which rows depend, except the spectra.
#[derive(Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Instruction set of the processor; `None` in journals of versions that did not name it.
    pub instruction_set: Option<&'a str>,
    /// Inputs of the rows, one per line.
    pub inputs: &'a str,
}

impl Key<'_> {
    /// Reads the text of a key.
    pub fn parse(text: &str) -> Key<'_> {
        match text
            .strip_prefix(INSTRUCTION_SET)
            .and_then(|rest| rest.split_once('\n'))
        {
            Some((set, inputs)) => Key {
                instruction_set: Some(set),
                inputs,
            },
            None => Key {
                instruction_set: None,
                inputs: text,
            },
        }
    }

    /// Returns the text of the key.
    pub fn text(&self) -> String {
        let set = self
            .instruction_set
            .map(|set| format!("{INSTRUCTION_SET}{set}\n"));
        set.unwrap_or_default() + self.inputs
    }

    /// Returns why a run with the key `now` cannot go on with the rows of this one; `None` if it can.
    pub fn refusal(&self, now: &Key) -> Option<String> {
        if self.inputs != now.inputs {
            return Some(format!(
                "it is of another run: {}",
                difference(self.inputs, now.inputs)
            ));
        }
        let (before, now) = self
            .instruction_set
            .zip(now.instruction_set)
            .filter(|(before, now)| before != now)?;
        Some(format!(
            "its rows were computed with the instruction set {before}, and this processor has {now}, which rounds \
             sums in another way: resume the run on a processor with {before}, or remove this file to begin anew"
        ))
    }
}

/// Returns a description of the first line in which two keys differ.
fn difference(before: &str, now: &str) -> String {
    let [mut before, mut now] =
        [before, now].map(|key| key.lines().filter(|line| !line.trim().is_empty()));
    loop {
        match (before.next(), now.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return "empty lines of the model file differ".into(),
            (a, b) => return format!("it has {} where this one has {}", quoted(a), quoted(b)),
        }
    }
}

/// Returns a line in backquotes, shortened to 120 characters, for a message; without a line, `nothing`.
fn quoted(line: Option<&str>) -> String {
    /// Maximum number of characters of a line that are quoted.
    const MAX_LENGTH: usize = 120;
    match line {
        Some(line) if line.chars().count() > MAX_LENGTH => {
            format!("`{}…`", line.chars().take(MAX_LENGTH).collect::<String>())
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
        for (instruction_set, inputs) in [
            (Some("x86_64-v3"), "a = 1\nb = 2"),
            (Some("aarch64-neon"), ""),
            (None, "a"),
        ] {
            let key = Key {
                instruction_set,
                inputs,
            };
            assert_eq!(Key::parse(&key.text()), key);
        }
        let name = instruction_set();
        assert!(
            name.starts_with(std::env::consts::ARCH) && !name.contains(['(', ' ', '\n']),
            "{name}"
        );
    }
}
