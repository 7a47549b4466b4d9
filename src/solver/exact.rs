//! Numbers by their bits, for states that are saved and taken up again: text formats have no NaN and no infinity.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.to_bits().serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    u64::deserialize(deserializer).map(f64::from_bits)
}

/// A list of them.
pub mod list {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        values.iter().map(|x| x.to_bits()).collect::<Vec<u64>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::<u64>::deserialize(deserializer)?.into_iter().map(f64::from_bits).collect())
    }
}
