//! Check for JSON objects in which a key is repeated. Parsers keep one of the two values silently.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Fails if the text is not valid JSON, or if an object in it has a key twice.
pub(super) fn check_unique_keys(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<JsonWithUniqueKeys>(json).map(|_| ())
}

/// Any JSON value in which no object has a key twice.
struct JsonWithUniqueKeys;

impl<'de> Deserialize<'de> for JsonWithUniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonWithUniqueKeys)
    }
}

impl<'de> Visitor<'de> for JsonWithUniqueKeys {
    type Value = JsonWithUniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<JsonWithUniqueKeys, E> {
        Ok(JsonWithUniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonWithUniqueKeys, A::Error> {
        while items.next_element::<JsonWithUniqueKeys>()?.is_some() {}
        Ok(JsonWithUniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonWithUniqueKeys, A::Error> {
        let mut keys = HashSet::new();
        while let Some((key, JsonWithUniqueKeys)) =
            map.next_entry::<String, JsonWithUniqueKeys>()?
        {
            if keys.contains(&key) {
                return Err(A::Error::custom(format!("key `{key}` twice")));
            }
            keys.insert(key);
        }
        Ok(JsonWithUniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::check_unique_keys;

    #[test]
    fn repeated_keys_are_errors() {
        assert!(
            check_unique_keys(br#"{"a": {"x": 1, "y": [1, -1, 0.5, null, true, "z"]}, "b": {}}"#)
                .is_ok()
        );
        let invalid = [
            &br#"{"a": {}, "a": {}}"#[..],
            br#"{"a": {"x": 1, "x": 2}}"#,
            br#"[{"a": [{"x": 1, "x": 2}]}]"#,
            b"{",
        ];
        for json in invalid {
            assert!(check_unique_keys(json).is_err());
        }
    }
}
