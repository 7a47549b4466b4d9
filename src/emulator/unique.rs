//! JSON objects with a key twice: parsers keep one of the two without a word.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Fails if the text is not valid JSON, or if an object in it has a key twice.
pub(super) fn check_keys(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Checked>(json).map(|_| ())
}

/// Any JSON value in which no object has a key twice.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Checked)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Checked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Checked, A::Error> {
        let mut seen = HashSet::new();
        while let Some((key, Checked)) = map.next_entry::<String, Checked>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("key `{key}` twice")));
            }
            seen.insert(key);
        }
        Ok(Checked)
    }
}

#[cfg(test)]
mod tests {
    use super::check_keys;

    #[test]
    fn repeated_keys_are_errors() {
        assert!(
            check_keys(br#"{"a": {"x": 1, "y": [1, -1, 0.5, null, true, "z"]}, "b": {}}"#).is_ok()
        );
        let bad = [
            &br#"{"a": {}, "a": {}}"#[..],
            br#"{"a": {"x": 1, "x": 2}}"#,
            br#"[{"a": [{"x": 1, "x": 2}]}]"#,
            b"{",
        ];
        for bad in bad {
            assert!(check_keys(bad).is_err());
        }
    }
}
