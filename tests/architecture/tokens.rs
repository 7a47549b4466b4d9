//! Rust source as tokens: no comments, and no code that is compiled for tests alone.
//!
//! A token is a word, a number, `::`, a single character, or a string with its opening quote. Lifetimes and characters
//! are left out.

use std::iter;

/// Words with which an item begins that ends with its block or a `;`. Fields, variants and arms also end with a `,`.
const ITEMS: [&str; 16] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "unsafe",
    "use",
];

/// Returns the tokens of a text.
pub fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = comment(rest) {
            length
        } else if let Some((content, length)) = string(rest) {
            found.push(format!("\"{content}"));
            length
        } else if rest.starts_with("::") {
            found.push("::".to_owned());
            2
        } else if rest.starts_with("r#") {
            2
        } else if first == '\'' {
            quoted(rest)
        } else if is_part_of_word(first) {
            let length = word(rest);
            found.push(rest[..length].to_owned());
            length
        } else {
            found.extend((!first.is_whitespace()).then(|| first.to_string()));
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

fn is_part_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn word(text: &str) -> usize {
    text.find(|letter| !is_part_of_word(letter))
        .unwrap_or(text.len())
}

/// Returns the length of the comment with which a text begins. Block comments nest.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut depth = text.starts_with("/*").then_some(0)?;
    let mut at = 0;
    while at < text.len() {
        let mark = text.as_bytes().get(at..at + 2).unwrap_or_default();
        depth += i32::from(mark == b"/*") - i32::from(mark == b"*/");
        at += if mark == b"/*" || mark == b"*/" { 2 } else { 1 };
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

/// Returns the content and the length of the string with which a text begins: `"…"`, `r#"…"#`, `b"…"`, `c"…"`.
fn string(text: &str) -> Option<(&str, usize)> {
    let bare = text.strip_prefix(['b', 'c']).unwrap_or(text);
    let prefix = text.len() - bare.len();
    if let Some(raw) = bare.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let content = raw[hashes..].strip_prefix('"')?;
        let end = content.find(&format!("\"{}", "#".repeat(hashes)))?;
        return Some((&content[..end], prefix + 1 + hashes + 1 + end + 1 + hashes));
    }
    let content = bare.strip_prefix('"')?;
    let mut escaped = false;
    let end = content.find(|letter| {
        let closes = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        closes
    })?;
    Some((&content[..end], prefix + end + 2))
}

/// Returns the length of the character or the lifetime with which a text begins.
fn quoted(text: &str) -> usize {
    if text[1..].starts_with('\\') {
        return 4 + text[3..].find('\'').expect("a character ends");
    }
    let letter = text[1..].chars().next().map_or(0, char::len_utf8);
    if text[1 + letter..].starts_with('\'') {
        letter + 2
    } else {
        1 + word(&text[1..])
    }
}

/// Returns the place of the bracket that closes the one at `open`.
pub fn close(tokens: &[String], open: usize) -> usize {
    find(tokens, open + 1, &[])
}

/// Returns the place of the first of `stops` from `at` on that no bracket encloses, or else the end of what encloses
/// `at`.
fn find(tokens: &[String], at: usize, stops: &[&str]) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        let (opens, closes) = (
            matches!(token.as_str(), "(" | "[" | "{"),
            matches!(token.as_str(), ")" | "]" | "}"),
        );
        if depth == 0 && (closes || stops.contains(&token.as_str())) {
            return place;
        }
        depth += usize::from(opens);
        depth -= usize::from(closes);
    }
    tokens.len()
}

/// Splits tokens at each comma that no bracket encloses.
pub fn split(tokens: &[String]) -> Vec<&[String]> {
    let mut start = 0;
    iter::from_fn(|| {
        (start < tokens.len()).then(|| {
            let end = find(tokens, start, &[","]);
            let part = &tokens[start..end];
            start = end + 1;
            part
        })
    })
    .collect()
}

/// Returns the tokens without what is compiled for tests alone.
pub fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // all attributes of an item stay or go with it
        let mut end = at;
        let (mut for_tests, mut is_inner) = (false, false);
        while let Some(open) = attribute(&tokens[end..]).map(|offset| end + offset) {
            let stop = close(tokens, open);
            if is_for_tests(&tokens[open + 1..stop]) {
                for_tests = true;
                is_inner |= tokens[open - 1] == "!";
            }
            end = stop + 1;
        }
        if for_tests {
            at = if is_inner {
                find(tokens, end, &[])
            } else {
                end_of_item(tokens, end)
            };
        } else {
            end = end.max(at + 1);
            kept.extend_from_slice(&tokens[at..end]);
            at = end;
        }
    }
    kept
}

/// Returns the place of the `[` of the attribute with which tokens begin.
fn attribute(tokens: &[String]) -> Option<usize> {
    let open = 1 + usize::from(tokens.get(1)? == "!");
    (tokens[0] == "#" && tokens.get(open)? == "[").then_some(open)
}

fn is_for_tests(attribute: &[String]) -> bool {
    match attribute {
        [word] => word == "test" || word == "bench",
        [cfg, open, condition @ .., _] if cfg == "cfg" && open == "(" => {
            holds(condition) == Some(false)
        }
        _ => false,
    }
}

/// Says whether a condition of `cfg` holds outside of tests; `None` if that depends on features or targets.
fn holds(condition: &[String]) -> Option<bool> {
    let [word, inner @ ..] = condition else {
        return None;
    };
    let parts = || split(&inner[1..inner.len() - 1]).into_iter().map(holds);
    match word.as_str() {
        "test" | "doctest" => Some(false),
        "all" if parts().any(|part| part == Some(false)) => Some(false),
        "any" if parts().all(|part| part == Some(false)) => Some(false),
        _ => None,
    }
}

fn end_of_item(tokens: &[String], start: usize) -> usize {
    let mut at = start;
    if tokens.get(at).is_some_and(|word| word == "pub") {
        at += 1;
        if tokens.get(at).is_some_and(|open| open == "(") {
            at = close(tokens, at) + 1;
        }
    }
    let is_item = tokens
        .get(at)
        .is_some_and(|word| ITEMS.contains(&word.as_str()));
    let end = find(
        tokens,
        at,
        if is_item {
            &["{", ";"]
        } else {
            &["{", ";", ","]
        },
    );
    match tokens.get(end).map(String::as_str) {
        Some("{") => close(tokens, end) + 1,
        Some(";" | ",") => end + 1,
        _ => end,
    }
}
