//! What statuses are called, and what they mean.

/// How a fit ended, by its status code.
pub fn meaning(code: i32) -> &'static str {
    match code {
        1 => "converged: gradient",
        2 => "converged: objective",
        3 => "converged: step",
        4 => "converged: objective and step",
        0 => "stopped: no rounds left",
        -1 => "the spectrum cannot be fitted",
        -2 => "cancelled",
        -3 => "the normal matrix could not be solved",
        -4 => "the model is not finite at the start",
        -5 => "no acceptable step",
        _ => "",
    }
}

/// The class that colours a status: good, fair, bad.
pub fn grade(code: i32) -> &'static str {
    match code {
        1.. => "good",
        0 | -2 => "fair",
        _ => "bad",
    }
}

/// The unit of a parameter, as popfit's own emulators name them.
pub fn unit<'a>(units: &'a [(String, String)], parameter: &str) -> &'a str {
    if let Some((_, unit)) = units.iter().find(|(name, unit)| name == parameter && !unit.is_empty()) {
        return unit;
    }
    match parameter {
        "velocity" | "vsini" => "km/s",
        "teff" => "K",
        "logg" | "feh" | "alpha" => "dex",
        _ => "",
    }
}

/// A parameter with its unit, as axes and heads say it.
pub fn with_unit(units: &[(String, String)], parameter: &str) -> String {
    match unit(units, parameter) {
        "" => parameter.to_string(),
        unit => format!("{parameter} ({unit})"),
    }
}
