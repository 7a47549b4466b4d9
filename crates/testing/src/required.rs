//! Things that some tests cannot do without: a GPU adapter, a browser, Python.

use std::fmt::Display;

/// Something that a machine may lack.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Gpu,
    Chromium,
    Python,
}

impl Need {
    /// Returns the variable that says whether the thing is required: `0` is no, anything else yes.
    fn variable(self) -> &'static str {
        match self {
            Need::Gpu => "POPFIT_REQUIRE_GPU",
            Need::Chromium => "POPFIT_REQUIRE_CHROMIUM",
            Need::Python => "POPFIT_REQUIRE_PYTHON",
        }
    }
}

/// Reports that a test is skipped because something is missing. Fails instead where it is required: by its variable,
/// or, if that is not set, because `CI` is set.
#[track_caller]
pub fn skip(need: Need, cause: impl Display) {
    let value = |variable: &str| std::env::var(variable).ok().filter(|value| !value.is_empty());
    let variable = need.variable();
    if is_required(value(variable).as_deref(), value("CI").as_deref()) {
        panic!("{cause}; this test needs it. {variable}=0 allows skipping the test");
    }
    println!("skipped: {cause} ({variable}=1 makes this a failure)");
}

/// Returns what was found. A thing that is missing is reported, and the test [skipped](skip).
#[track_caller]
pub fn found<T>(need: Need, result: Result<T, impl Display>) -> Option<T> {
    match result {
        Ok(thing) => Some(thing),
        Err(cause) => {
            skip(need, cause);
            None
        }
    }
}

/// Decides by the values of a variable and of `CI` whether a thing is required.
pub fn is_required(variable: Option<&str>, ci: Option<&str>) -> bool {
    match (variable, ci) {
        (Some(value), _) => value != "0",
        (None, Some(value)) => !["0", "false"].contains(&value),
        (None, None) => false,
    }
}
