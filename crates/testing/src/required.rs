//! Things that some tests cannot do without: a GPU adapter, a browser, real spectra.
//!
//! A test that lacks one passes, and libtest swallows what it prints. So every program that skipped tests says so in a
//! closing line on its standard error, which libtest does not capture.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};

/// Something that a machine may lack.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Gpu,
    Chromium,
}

impl Need {
    /// Returns the variable that says whether the thing is required: `0` is no, anything else yes.
    fn variable(self) -> &'static str {
        match self {
            Need::Gpu => "POPFIT_REQUIRE_GPU",
            Need::Chromium => "POPFIT_REQUIRE_CHROMIUM",
        }
    }
}

/// Reports that a test is skipped because something is missing. Fails instead where it is required: by its variable,
/// or, if that is not set, because `CI` is set.
#[track_caller]
pub fn skip(need: Need, cause: impl Display) {
    let value = |variable: &str| {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
    };
    let variable = need.variable();
    if is_required(value(variable).as_deref(), value("CI").as_deref()) {
        panic!("{cause}; this test needs it. {variable}=0 allows skipping the test");
    }
    report_skip(format_args!("{cause} ({variable}=1 makes this a failure)"));
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

/// Skips of this program.
struct Skips {
    /// Names of tests that skipped something; a test that has no thread of its own has a name made up.
    tests: BTreeSet<String>,
    causes: BTreeSet<String>,
}

static SKIPS: Mutex<Skips> = Mutex::new(Skips {
    tests: BTreeSet::new(),
    causes: BTreeSet::new(),
});

/// Reports that the running test leaves out what it is for, or a part of it, because of `cause`: in the test's own
/// output, and in the line with which the program ends.
pub fn report_skip(cause: impl Display) {
    static AT_EXIT: Once = Once::new();
    println!("skipped: {cause}");
    let mut skips = SKIPS.lock().unwrap_or_else(PoisonError::into_inner);
    // libtest names the thread of a test after it; with one thread, it runs tests on the main one
    let thread = std::thread::current();
    let number = skips.tests.len();
    let name = thread
        .name()
        .filter(|name| *name != "main")
        .map_or_else(|| format!("unnamed {number}"), str::to_owned);
    skips.tests.insert(name);
    skips.causes.insert(cause.to_string());
    AT_EXIT.call_once(|| {
        // SAFETY: the C library calls the function once, when the process ends, and the function does not unwind
        let refused = unsafe { atexit(print_skips) };
        assert_eq!(
            refused, 0,
            "the C library takes no function for the program's end"
        );
    });
}

unsafe extern "C" {
    /// Has the C library call a function when the process ends, in whatever way `libtest` ends it.
    fn atexit(function: extern "C" fn()) -> i32;
}

/// Prints how many tests of this program did not run as they should, and why, on the real standard error.
extern "C" fn print_skips() {
    let skips = SKIPS.lock().unwrap_or_else(PoisonError::into_inner);
    // a standard error that is closed is no reason to end otherwise
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        closing_line(&program(), skips.tests.len(), &skips.causes)
    );
}

/// Returns the closing line of a program of which `tests` tests were skipped.
fn closing_line(program: &str, tests: usize, causes: &BTreeSet<String>) -> String {
    let tests = if tests == 1 {
        "1 test".to_string()
    } else {
        format!("{tests} tests")
    };
    let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
    format!(
        "{program}: {tests} skipped, in whole or in part, and counted as passed: {}",
        causes.join("; ")
    )
}

/// Returns the name of this test program, without the hash that cargo appends to it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit_once('-')
        .map_or(&*stem, |(name, _)| name)
        .to_string()
}
