//! Progress of a run, on standard error.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use popfit::low_level::printable;

use super::rows::short;

/// Returns a progress bar over `total` spectra on standard error; it is hidden if `quiet`, or if that is no terminal.
pub fn progress_bar(total: u64, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    }
    let template = "{bar:40} {pos}/{len} spectra, {rate}/s, {eta} left";
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = out.write_str(&short(state.per_sec(), 3));
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style.with_key("rate", rate))
}

/// Prints each text as a line on standard error; what cannot be written is lost.
pub fn say(lines: impl IntoIterator<Item = String>) {
    lines
        .into_iter()
        .for_each(|line| drop(writeln!(std::io::stderr(), "{}", printable(&line))));
}
