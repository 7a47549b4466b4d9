//! Enums whose values have names in model files, emulator files and on the command line.

/// Gives an enum its names: a table of them, `name`, `Display` and `FromStr`.
///
/// `$kind` describes the values in the error for an unknown word.
macro_rules! named {
    ($type:ident, $kind:literal, [$($name:literal => $variant:ident),+ $(,)?]) => {
        impl $type {
            /// All values with the names that files give them.
            pub(crate) const NAMES: &[(&str, $type)] = &[$(($name, $type::$variant)),+];

            /// Returns the word that stands for this value in model files and outputs.
            pub(crate) const fn name(self) -> &'static str {
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

            /// Reads a name; [`Error::Usage`]($crate::Error::Usage) suggests a similar one.
            fn from_str(name: &str) -> $crate::Result<$type> {
                let entry = $type::NAMES.iter().find(|(known, _)| *known == name);
                entry.map(|(_, value)| *value).ok_or_else(|| {
                    let hint = $crate::suggest::hint(name, $type::NAMES.iter().map(|(known, _)| *known));
                    $crate::Error::Usage(format!("`{name}` is no {}{hint}", $kind))
                })
            }
        }
    };
}

pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::emulator::Transform;
    use crate::model::ContinuumKind;
    use crate::{Interpolation, NonFinite, VelocityScan};

    /// Checks that each name is read as the value that is written by it, in text and in JSON.
    #[track_caller]
    fn check_round_trip<T>(values: &[(&str, T)])
    where
        T: Copy
            + PartialEq
            + std::fmt::Debug
            + std::fmt::Display
            + std::str::FromStr<Err = crate::Error>,
    {
        for (name, value) in values {
            assert_eq!(value.to_string(), *name);
            assert_eq!(name.parse::<T>().unwrap(), *value);
        }
        let unknown = values[0].0[1..].parse::<T>().unwrap_err().to_string();
        assert!(
            unknown.contains("` is no ") && unknown.contains(values[0].0),
            "{unknown}"
        );
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        check_round_trip(ContinuumKind::NAMES);
        check_round_trip(Interpolation::NAMES);
        check_round_trip(NonFinite::NAMES);
        check_round_trip(Transform::NAMES);
        check_round_trip(VelocityScan::NAMES);
    }
}
