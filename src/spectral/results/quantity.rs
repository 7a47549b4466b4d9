//! Units and meanings of the parameters that spectral models usually have.

/// A parameter that popfit knows by its name.
struct Known {
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
}

/// The parameters that popfit knows.
const KNOWN: [Known; 6] = [
    Known {
        name: "velocity",
        unit: "km/s",
        meaning: "Radial velocity, positive when receding",
    },
    Known {
        name: "vsini",
        unit: "km/s",
        meaning: "Projected rotation velocity",
    },
    Known {
        name: "teff",
        unit: "K",
        meaning: "Effective temperature",
    },
    Known {
        name: "logg",
        unit: "dex",
        meaning: "Logarithm of the surface gravity in cm/s2",
    },
    Known {
        name: "feh",
        unit: "dex",
        meaning: "Metallicity [Fe/H]",
    },
    Known {
        name: "alpha",
        unit: "dex",
        meaning: "[alpha/Fe]",
    },
];

/// Finds what popfit knows of a parameter of this name (unit and meaning); `None` if nothing.
fn known(parameter: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == parameter)
}

/// Returns the unit of a parameter: the one that `units` (name and unit) gives, or else the usual one; empty without
/// either.
pub(crate) fn unit<'a>(units: &'a [(String, String)], parameter: &str) -> &'a str {
    match units
        .iter()
        .find(|(name, unit)| name == parameter && !unit.is_empty())
    {
        Some((_, unit)) => unit,
        None => known(parameter).map_or("", |known| known.unit),
    }
}

/// Returns the meaning of a parameter that popfit knows.
pub(crate) fn meaning(parameter: &str) -> Option<&'static str> {
    known(parameter).map(|known| known.meaning)
}
