//! Summary of how the fits ended: tiles, statuses, flags.

use std::fmt::Write;

use super::About;
use super::collect::Collector;
use super::number::{count, escape, number, percent};
use super::words::{ending, grade, html, meaning, symbol};
use crate::flag::Flags;
use crate::math;

/// Maximum number of statuses that the page counts. A table of popfit's has fewer.
const MOST_STATUSES: usize = 50;

/// Returns the HTML of the key figures on top of the page: spectra, converged, flagged, medians of χ²/dof and S/N,
/// speed.
pub fn tiles(about: &About, kept: &Collector) -> String {
    let mut out = String::new();
    let mut tile = |value: &str, name: &str, more: &str| {
        let _ = write!(
            out,
            "<div class=tile><b>{value}</b><span>{name}</span><small>{more}</small></div>"
        );
    };
    tile(&count(kept.count), "spectra", "");
    let others = kept.count - kept.converged;
    let more = if others == 0 {
        "all of them".to_string()
    } else {
        format!("{} did not", count(others))
    };
    tile(
        &percent(kept.converged, kept.count),
        "converged",
        if kept.count == 0 { "" } else { &more },
    );
    tile(
        &percent(kept.flagged, kept.count),
        "flagged",
        &spectra(kept.flagged),
    );
    tile(&median(kept.column(0)), "median χ²/dof", "");
    let sn = median(kept.column(1));
    if sn != "–" {
        tile(&sn, "median S/N", "per pixel");
    }
    if let Some(time) = about.time {
        let seconds = time.as_secs_f64();
        let fitted = kept.count.saturating_sub(about.recalled);
        let rate = fitted as f64 / seconds.max(1e-9);
        let now = if about.recalled > 0 {
            format!("{} fitted now, ", count(fitted))
        } else {
            String::new()
        };
        tile(
            &number(rate, 3),
            "spectra per second",
            &format!("{now}{} s in all", number(seconds, 3)),
        );
    }
    out
}

/// Returns text such as `3 spectra`; empty for 0.
fn spectra(n: u64) -> String {
    match n {
        0 => String::new(),
        1 => "1 spectrum".into(),
        n => format!("{} spectra", count(n)),
    }
}

/// Returns the median of the finite values as text, – if there is none.
fn median(mut values: Vec<f64>) -> String {
    values.retain(|x| x.is_finite());
    math::median(&mut values).map_or_else(|| "–".into(), |x| number(x, 3))
}

/// Returns HTML bars of how many fits ended with each status, converged ones first, of 50 statuses at most.
pub fn statuses(kept: &Collector) -> String {
    let shown = kept.outcomes.iter().rev().take(MOST_STATUSES);
    let mut out: String = shown
        .map(|((code, text), n)| {
            bar(
                grade(*code),
                &escape(&ending(*code, text)),
                meaning(*code),
                *n,
                kept.count,
            )
        })
        .collect();
    let more = kept.outcomes.len().saturating_sub(MOST_STATUSES);
    if more > 0 {
        let _ = write!(
            out,
            "<p class=note>and {more} more statuses, of which popfit writes none</p>"
        );
    }
    out
}

/// Returns HTML bars of the number of rows with each flag. Lines of text below have the number of rows in which each
/// parameter ended at a bound, and advice on frequent flags.
pub fn flags(kept: &Collector) -> String {
    let mut out = String::new();
    for (flag, n) in Flags::DESCRIPTIONS
        .iter()
        .zip(kept.flags.by_flag())
        .filter(|(_, n)| **n > 0)
    {
        out += &bar(
            "fair",
            &escape(flag.label),
            &escape(flag.meaning),
            *n,
            kept.count,
        );
    }
    if out.is_empty() {
        return "<p class=nothing>No spectrum is flagged.</p>".into();
    }
    let bounds = kept
        .parameters
        .iter()
        .zip(kept.flags.by_bound())
        .filter(|(_, n)| **n > 0);
    let bounds: Vec<String> = bounds
        .map(|(name, n)| format!("{} {}", html(symbol(name)), count(*n)))
        .collect();
    if !bounds.is_empty() {
        let _ = write!(out, "<p class=note>at a bound: {}</p>", bounds.join(", "));
    }
    for line in kept.flags.lines() {
        let _ = write!(out, "<p class=note>{}</p>", escape(&line));
    }
    out
}

/// Returns an HTML row with a name, its meaning, a bar as long as `n` of `whole`, the count and the percentage.
fn bar(class: &str, name: &str, meaning: &str, n: u64, whole: u64) -> String {
    let width = 100.0 * n as f64 / whole.max(1) as f64;
    format!(
        "<div class=row><span class=name>{name}<small>{meaning}</small></span>\
         <span class=track><i class={class} style='width:{width:.2}%'></i></span>\
         <span class=count>{}<small>{}</small></span></div>",
        count(n),
        percent(n, whole)
    )
}
