//! Units and meanings of the parameters that spectral models usually have.

/// A parameter that popfit knows by its name.
struct KnownParameter {
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
}

/// The parameters that popfit knows.
const KNOWN_PARAMETERS: [KnownParameter; 6] = [
    KnownParameter {
        name: "velocity",
        unit: "km/s",
        meaning: "Radial velocity, positive when receding",
    },
    KnownParameter {
        name: "vsini",
        unit: "km/s",
        meaning: "Projected rotation velocity",
    },
    KnownParameter {
        name: "teff",
        unit: "K",
        meaning: "Effective temperature",
    },
    KnownParameter {
        name: "logg",
        unit: "dex",
        meaning: "Logarithm of the surface gravity in cm/s2",
    },
    KnownParameter {
        name: "feh",
        unit: "dex",
        meaning: "Metallicity [Fe/H]",
    },
    KnownParameter {
        name: "alpha",
        unit: "dex",
        meaning: "[alpha/Fe]",
    },
];

/// Returns the parameter that popfit knows by this name.
fn find_known(name: &str) -> Option<&'static KnownParameter> {
    KNOWN_PARAMETERS
        .iter()
        .find(|parameter| parameter.name == name)
}

/// Returns the unit of a parameter in `units` (name and unit), or else the usual one; empty without either.
pub(crate) fn unit<'a>(units: &'a [(String, String)], parameter: &str) -> &'a str {
    match units
        .iter()
        .find(|(name, unit)| name == parameter && !unit.is_empty())
    {
        Some((_, unit)) => unit,
        None => find_known(parameter).map_or("", |usual| usual.unit),
    }
}

/// Returns the meaning of a parameter that popfit knows.
pub(crate) fn meaning(parameter: &str) -> Option<&'static str> {
    find_known(parameter).map(|usual| usual.meaning)
}
