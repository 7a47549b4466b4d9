//! Enums whose values have names, in model files, in emulator files and on the command line.

/// Gives an enum its names: a table of them, `name`, `Display`, `FromStr`, and serde's traits.
///
/// `$what` says in an error what an unknown word should have been.
macro_rules! named {
    ($type:ident, $what:literal, [$($name:literal => $variant:ident),+ $(,)?]) => {
        impl $type {
            /// All values with the names that files give them.
            pub const NAMES: &[(&str, $type)] = &[$(($name, $type::$variant)),+];

            /// Returns the word that stands for this value in model files and outputs.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Error;

            /// Reads a name; [`Error::Usage`]($crate::Error::Usage) suggests a near one.
            fn from_str(name: &str) -> $crate::Result<$type> {
                let known = $type::NAMES.iter().find(|(known, _)| *known == name);
                known.map(|(_, value)| *value).ok_or_else(|| {
                    let hint = $crate::suggest::hint(name, $type::NAMES.iter().map(|(known, _)| *known));
                    $crate::Error::Usage(format!("`{name}` is no {}{hint}", $what))
                })
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::emulator::Transform;
    use crate::{Continuum, ContinuumKind, Interpolation, LineSpread, NonFinite, VelocityScan};

    /// A name is read as what is written by it, in text and in JSON.
    #[track_caller]
    fn round_trip<T>(values: &[(&str, T)])
    where
        T: Copy
            + PartialEq
            + std::fmt::Debug
            + std::fmt::Display
            + std::str::FromStr<Err = crate::Error>,
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        for (name, value) in values {
            assert_eq!(value.to_string(), *name);
            assert_eq!(name.parse::<T>().unwrap(), *value);
            let json = serde_json::to_string(value).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *value);
        }
        let unknown = values[0].0[1..].parse::<T>().unwrap_err().to_string();
        assert!(
            unknown.contains("` is no ") && unknown.contains(values[0].0),
            "{unknown}"
        );
        assert!(serde_json::from_str::<T>("\"qqqqqqqq\"").is_err());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        round_trip(ContinuumKind::NAMES);
        round_trip(Interpolation::NAMES);
        round_trip(NonFinite::NAMES);
        round_trip(Transform::NAMES);
        round_trip(VelocityScan::NAMES);
    }

    /// JSON has the words and keys of the model file.
    #[test]
    fn settings_look_like_the_model_file() {
        let json = |value: &dyn Fn() -> serde_json::Result<String>| value().unwrap();
        assert_eq!(
            json(&|| serde_json::to_string(&LineSpread::File)),
            r#""file""#
        );
        assert_eq!(
            json(&|| serde_json::to_string(&LineSpread::Fwhm(1.5))),
            r#"{"fwhm":1.5}"#
        );
        assert_eq!(
            json(&|| serde_json::to_string(&Continuum::rbf(10))),
            r#"{"kind":"rbf","terms":10}"#
        );
        let power = serde_json::from_str::<LineSpread>(r#"{"resolving_power": 4000}"#).unwrap();
        assert_eq!(power, LineSpread::ResolvingPower(4000.0));
    }
}
