//! Suggestions of similar names for an unknown name.

/// Minimum similarity, 1 − edits / letters, at which a known name is suggested.
const MIN_SIMILARITY: f64 = 0.6;

/// Minimum number of letters of a word that identify a longer name which contains it.
const MIN_PART_LENGTH: usize = 4;

/// Returns the known name most similar to a misspelt `word`, ignoring case; `None` if no name is similar enough.
pub(crate) fn find_nearest<'a>(
    word: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .map(|name| (similarity(&word, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .min_by(|(a, _), (b, _)| b.total_cmp(a))
        .map(|(_, name)| name)
}

/// Returns the similarity of two words in lower case, which is at least the minimum if the name contains the word.
fn similarity(word: &str, name: &str) -> f64 {
    let of_part = if word.len() >= MIN_PART_LENGTH && name.contains(word) {
        MIN_SIMILARITY
    } else {
        0.0
    };
    strsim::normalized_damerau_levenshtein(word, name).max(of_part)
}

/// Returns text to append to an error about an unknown name: `; did you mean …?` if one is similar, and all known
/// names.
pub(crate) fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let names = known.clone().collect::<Vec<_>>().join(", ");
    match find_nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`? (known: {names})"),
        None if names.is_empty() => String::new(),
        None => format!("; known: {names}"),
    }
}

/// Returns the message that there is no `kind` of this name, which suggests a similar name and lists the existing ones.
pub(crate) fn missing_name_message(kind: &str, name: &str, existing: &[String]) -> String {
    let suggestion = find_nearest(name, existing.iter().map(String::as_str))
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    format!(
        "no {kind} `{name}`{suggestion} (found: {})",
        join_names(kind, existing)
    )
}

/// Joins names for a message: at most sixteen of them, and the number of the others; `no {kind}` if there are none.
pub(crate) fn join_names(kind: &str, names: &[String]) -> String {
    const MAX_JOINED_NAMES: usize = 16;
    let joined = names.get(..MAX_JOINED_NAMES).unwrap_or(names).join(", ");
    match names.len() {
        0 => format!("no {kind}"),
        count if count > MAX_JOINED_NAMES => {
            format!("{joined} and {} more", count - MAX_JOINED_NAMES)
        }
        _ => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::{find_nearest, hint};

    #[test]
    fn misspelt_names_are_recognised_and_other_words_are_not() {
        let known = [
            "exp",
            "sqrt",
            "gauss1d",
            "gauss2d_elliptic",
            "velocity",
            "terms",
            "a",
            "k1",
        ];
        for (word, suggestion) in [
            ("exq", Some("exp")),
            ("EXP", Some("exp")),
            ("gauss_1d", Some("gauss1d")),
            ("gaussian1d", Some("gauss1d")),
            ("velocty", Some("velocity")),
            ("term", Some("terms")),
            ("elliptic", Some("gauss2d_elliptic")),
            ("frobnicate", None),
            ("temperature", None),
            ("b", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(find_nearest(word, known.into_iter()), suggestion, "{word}");
        }
        assert_eq!(
            hint("exq", ["exp", "ln"].into_iter()),
            "; did you mean `exp`? (known: exp, ln)"
        );
        assert_eq!(hint("z", ["exp", "ln"].into_iter()), "; known: exp, ln");
        assert_eq!(hint("z", [].into_iter()), "");
    }
}
