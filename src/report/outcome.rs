//! Summary of how the fits ended: tiles, statuses, flags.

use std::fmt::Write;

use super::About;
use super::collect::Collector;
use super::number::{escape_html, format_count, format_number, format_percent};
use super::words::{
    describe_status, html_with_subscript, parameter_symbol, status_class, status_meaning,
};
use crate::flag::FLAG_DESCRIPTIONS;
use crate::math;

/// Maximum number of statuses that the page shows. A table that popfit wrote has fewer.
const MAX_SHOWN_STATUSES: usize = 50;

/// Returns the HTML of the key figures on top of the page: spectra, converged, flagged, medians of χ²/dof and S/N,
/// speed.
pub fn draw_tiles(about: &About, collector: &Collector) -> String {
    // 1. Counts of fits.
    let mut tiles = draw_tile(&format_count(collector.count), "spectra", "");
    let failed = collector.count - collector.converged;
    let failed_note = match failed {
        _ if collector.count == 0 => String::new(),
        0 => "all of them".to_string(),
        _ => format!("{} did not", format_count(failed)),
    };
    tiles += &draw_tile(
        &format_percent(collector.converged, collector.count),
        "converged",
        &failed_note,
    );
    tiles += &draw_tile(
        &format_percent(collector.flagged, collector.count),
        "flagged",
        &count_spectra(collector.flagged),
    );
    // 2. Medians.
    tiles += &draw_tile(
        &format_median(collector.point_values(0)),
        "median χ²/dof",
        "",
    );
    let signal_to_noise = format_median(collector.point_values(1));
    if signal_to_noise != "–" {
        tiles += &draw_tile(&signal_to_noise, "median S/N", "per pixel");
    }
    // 3. The speed, of the fits that this run made itself.
    if let Some(time) = about.time {
        let seconds = time.as_secs_f64();
        let fitted = collector.count.saturating_sub(about.recalled);
        let rate = fitted as f64 / seconds.max(1e-9);
        let fitted_note = if about.recalled > 0 {
            format!("{} fitted now, ", format_count(fitted))
        } else {
            String::new()
        };
        tiles += &draw_tile(
            &format_number(rate, 3),
            "spectra per second",
            &format!("{fitted_note}{} s in all", format_number(seconds, 3)),
        );
    }
    tiles
}

/// Returns the HTML of a key figure: its value, its name and a note.
fn draw_tile(value: &str, name: &str, note: &str) -> String {
    format!("<div class=tile><b>{value}</b><span>{name}</span><small>{note}</small></div>")
}

/// Returns text such as `3 spectra`; empty for 0.
fn count_spectra(n: u64) -> String {
    match n {
        0 => String::new(),
        1 => "1 spectrum".into(),
        n => format!("{} spectra", format_count(n)),
    }
}

/// Returns the median of the finite values as text, – if there is none.
fn format_median(mut values: Vec<f64>) -> String {
    values.retain(|x| x.is_finite());
    math::median(&mut values).map_or_else(|| "–".into(), |x| format_number(x, 3))
}

/// Returns HTML bars of how many fits ended with each status, converged ones first, of 50 statuses at most.
pub fn draw_statuses(collector: &Collector) -> String {
    let mut bars = String::new();
    let outcomes = collector.outcomes.iter().rev();
    for ((code, status), n) in outcomes.take(MAX_SHOWN_STATUSES) {
        bars += &draw_bar(
            status_class(*code),
            &escape_html(&describe_status(*code, status)),
            status_meaning(*code),
            *n,
            collector.count,
        );
    }
    let not_shown = collector.outcomes.len().saturating_sub(MAX_SHOWN_STATUSES);
    if not_shown > 0 {
        let _ = write!(
            bars,
            "<p class=note>and {not_shown} more statuses, of which popfit writes none</p>"
        );
    }
    bars
}

/// Returns HTML bars of the number of rows with each flag. Lines of text below have the number of rows in which each
/// parameter ended at a bound, and advice on frequent flags.
pub fn draw_flags(collector: &Collector) -> String {
    // 1. A bar for each flag that any row has.
    let mut html = String::new();
    for (flag, n) in FLAG_DESCRIPTIONS.iter().zip(collector.flags.by_flag()) {
        if *n > 0 {
            html += &draw_bar(
                "fair",
                &escape_html(flag.label),
                &escape_html(flag.meaning),
                *n,
                collector.count,
            );
        }
    }
    if html.is_empty() {
        return "<p class=nothing>No spectrum is flagged.</p>".into();
    }
    // 2. The parameters that ended at a bound.
    let mut at_bound = Vec::new();
    for (name, n) in collector.parameters.iter().zip(collector.flags.by_bound()) {
        if *n > 0 {
            let symbol = html_with_subscript(parameter_symbol(name));
            at_bound.push(format!("{symbol} {}", format_count(*n)));
        }
    }
    if !at_bound.is_empty() {
        let _ = write!(
            html,
            "<p class=note>at a bound: {}</p>",
            at_bound.join(", ")
        );
    }
    // 3. Advice.
    for line in collector.flags.lines() {
        let _ = write!(html, "<p class=note>{}</p>", escape_html(&line));
    }
    html
}

/// Returns an HTML row with a name, its meaning, a bar as long as `n` of `whole`, the count and the percentage.
fn draw_bar(class: &str, name: &str, meaning: &str, n: u64, whole: u64) -> String {
    let width = 100.0 * n as f64 / whole.max(1) as f64;
    format!(
        "<div class=row><span class=name>{name}<small>{meaning}</small></span>\
         <span class=track><i class={class} style='width:{width:.2}%'></i></span>\
         <span class=count>{}<small>{}</small></span></div>",
        format_count(n),
        format_percent(n, whole)
    )
}
