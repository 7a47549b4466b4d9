//! JSON objects with a key twice: parsers keep one of the two without a word.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// Checks the keys of the outer object and of the objects in it.
pub(super) fn check_keys(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Outer>(json).map(|_| ())
}

struct Outer;
struct Inner;

impl<'de> Deserialize<'de> for Outer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys::<Inner>(Default::default())).map(|()| Outer)
    }
}

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys::<IgnoredAny>(Default::default())).map(|()| Inner)
    }
}

/// Visits a map whose values are `V`.
struct Keys<V>(std::marker::PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Keys<V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some((key, _)) = map.next_entry::<String, V>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("key `{key}` twice")));
            }
            seen.insert(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::check_keys;

    #[test]
    fn repeated_keys_are_errors() {
        assert!(check_keys(br#"{"a": {"x": 1, "y": [1]}, "b": {}}"#).is_ok());
        for bad in [&br#"{"a": {}, "a": {}}"#[..], br#"{"a": {"x": 1, "x": 2}}"#, b"[]", br#"{"a": 1}"#, b"{"] {
            assert!(check_keys(bad).is_err());
        }
    }
}
