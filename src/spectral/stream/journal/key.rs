//! Comparison of the inputs of two runs, which a journal holds as text.

/// Returns a description of the first line in which two keys differ.
pub fn difference(before: &str, now: &str) -> String {
    let [mut before, mut now] = [before, now].map(|key| key.lines().filter(|line| !line.trim().is_empty()));
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
