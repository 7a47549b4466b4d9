//! Suggestions for a name that nobody knows: names that may have been meant.

/// Least similarity, 1 − edits / letters, at which a known name is likely to be what was meant.
const LIKELY: f64 = 0.6;

/// So many letters of a longer name are a part that says which.
const PART: usize = 4;

/// Returns the known name most similar to a misspelt `word`, ignoring case; `None` if no name is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let alike = |name: &str| {
        let name = name.to_lowercase();
        let part = if word.len() >= PART && name.contains(&word) {
            LIKELY
        } else {
            0.0
        };
        strsim::normalized_damerau_levenshtein(&word, &name).max(part)
    };
    let likely = known
        .map(|name| (alike(name), name))
        .filter(|(alike, _)| *alike >= LIKELY);
    likely
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, name)| name)
}

/// Returns text to append to an error about an unknown name: `; did you mean …?` if one is similar, and all known
/// names.
pub(crate) fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = known.clone().collect::<Vec<_>>().join(", ");
    match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`? (known: {all})"),
        None if all.is_empty() => String::new(),
        None => format!("; known: {all}"),
    }
}

/// Returns the message that there is no `what` of this name: it suggests a near name and lists those that are there.
pub(crate) fn missing_name(what: &str, name: &str, found: &[String]) -> String {
    let near = nearest(name, found.iter().map(String::as_str));
    let near = near
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    format!(
        "no {what} `{name}`{near} (found: {})",
        shown_names(what, found)
    )
}

/// Joins names for a message: at most sixteen of them, and how many more there are; `no {what}` if there are none.
pub(crate) fn shown_names(what: &str, names: &[String]) -> String {
    const MOST: usize = 16;
    let shown = names.get(..MOST).unwrap_or(names).join(", ");
    match names.len() {
        0 => format!("no {what}"),
        n if n > MOST => format!("{shown} and {} more", n - MOST),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest};

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
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
        for (word, meant) in [
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
            assert_eq!(nearest(word, known.into_iter()), meant, "{word}");
        }
        assert_eq!(
            hint("exq", ["exp", "ln"].into_iter()),
            "; did you mean `exp`? (known: exp, ln)"
        );
        assert_eq!(hint("z", ["exp", "ln"].into_iter()), "; known: exp, ln");
        assert_eq!(hint("z", [].into_iter()), "");
    }
}
