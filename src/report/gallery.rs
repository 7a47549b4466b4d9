//! Galleries of spectra as HTML, within the room that the page has for them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::About;
use super::collect::Collector;
use super::number::{escape_html, format_count, shorten};
use super::panel::{anchor, draw_panel};
use super::spectra::Gallery;

/// HTML of galleries, and the spectra that it shows.
pub struct DrawnGalleries {
    pub html: String,
    /// Ids of the spectra, by their places in the input.
    pub ids: BTreeMap<u64, String>,
}

/// Returns the HTML of all galleries, without the spectra that do not fit into `max_bytes`, and the ids drawn.
/// Notes say how many are left out.
pub fn draw_galleries(
    about: &About,
    collector: &Collector,
    galleries: &[Gallery],
    max_bytes: usize,
) -> DrawnGalleries {
    let mut drawn = DrawnGalleries {
        html: String::new(),
        ids: BTreeMap::new(),
    };
    for gallery in galleries {
        let mut cards = String::new();
        let mut left_out = 0;
        // 1. Draw the panels for which there is room.
        for panel in &gallery.panels {
            let card = draw_panel(panel, &collector.parameters, about);
            if drawn.html.len() + cards.len() + card.len() > max_bytes {
                left_out += 1;
                continue;
            }
            cards += &card;
            drawn
                .ids
                .insert(panel.input_index, panel.row.id.to_string());
        }
        // 2. Link to those drawn in an earlier gallery.
        let links = draw_links(gallery, &drawn.ids);
        let note = left_out_note(left_out);
        drawn.html += &wrap_gallery(gallery, &format!("{note}{cards}{links}"));
    }
    drawn
}

/// Wraps a gallery's HTML `body` under a heading of its title and note, collapsed if the gallery is folded; returns
/// nothing for an empty body.
fn wrap_gallery(gallery: &Gallery, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    let title = escape_html(&gallery.title);
    let note = escape_html(&gallery.note);
    if gallery.folded {
        return format!(
            "<details class='spectra folded'><summary><b>{title}</b> <small>{note}</small></summary>{body}</details>"
        );
    }
    format!("<section class=spectra><h2>{title} <small>{note}</small></h2>{body}</section>")
}

/// Returns HTML links to the gallery's spectra that are drawn in an earlier one; empty if there are none.
fn draw_links(gallery: &Gallery, drawn_ids: &BTreeMap<u64, String>) -> String {
    let mut links = String::new();
    for input_index in &gallery.elsewhere {
        if let Some(id) = drawn_ids.get(input_index) {
            let comma = if links.is_empty() { "" } else { ", " };
            let _ = write!(
                links,
                "{comma}<a href='#{}'>{}</a>",
                anchor(*input_index),
                escape_html(&shorten(id))
            );
        }
    }
    if links.is_empty() {
        links
    } else {
        format!("<p class=note>Drawn above: {links}.</p>")
    }
}

/// Returns an HTML note that this many spectra are left out because the page would be too large; empty for 0.
fn left_out_note(spectra: usize) -> String {
    match spectra {
        0 => String::new(),
        1 => "<p class=note>One spectrum is left out: the page would be too large.</p>".into(),
        n => format!(
            "<p class=note>{} spectra are left out: the page would be too large.</p>",
            format_count(n as u64)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::panel::SpectrumPanel;
    use super::*;
    use crate::solver::Status;
    use crate::spectral::{ArmFit, FitRow};

    fn panel(input_index: u64) -> SpectrumPanel {
        let row = FitRow {
            file: "a.npz".into(),
            row: input_index,
            status: Status::BadInput,
            status_text: "no_data".into(),
            ..FitRow::new(100 + input_index as i64, 0)
        };
        let pixels = 20;
        let arm = ArmFit {
            wavelength: (0..pixels).map(|j| 5000.0 + j as f64).collect(),
            flux: vec![1.0; pixels as usize],
            error: vec![1.0; pixels as usize],
            model: vec![f64::NAN; pixels as usize],
            mask: vec![false; pixels as usize],
            ..ArmFit::default()
        };
        SpectrumPanel {
            input_index,
            row,
            arms: vec![arm],
            velocity: f64::NAN,
        }
    }

    fn gallery(orders: &[u64], elsewhere: &[u64]) -> Gallery {
        let panels = orders
            .iter()
            .map(|input_index| panel(*input_index))
            .collect();
        Gallery {
            title: "A <b>".into(),
            note: String::new(),
            folded: true,
            panels,
            elsewhere: elsewhere.to_vec(),
        }
    }

    #[test]
    fn spectra_beyond_the_size_limit_are_left_out_and_not_linked() {
        let about = About::default();
        let collector = Collector::new(&[]);
        let galleries = [gallery(&[0, 1, 2], &[]), gallery(&[], &[1, 2])];
        let all_drawn = draw_galleries(&about, &collector, &galleries, usize::MAX);
        assert_eq!(all_drawn.ids.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(
            all_drawn
                .html
                .contains("<a href='#s1'>101</a>, <a href='#s2'>102</a>"),
            "{}",
            all_drawn.html
        );
        assert!(all_drawn.html.contains("A &lt;b&gt;") && !all_drawn.html.contains("left out"));

        let max_bytes = 2 * draw_panel(&panel(0), &[], &About::default()).len() + 10;
        let two_drawn = draw_galleries(&about, &collector, &galleries, max_bytes);
        assert_eq!(two_drawn.ids.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert!(
            two_drawn.html.contains("One spectrum is left out") && !two_drawn.html.contains("#s2"),
            "{}",
            two_drawn.html
        );
        let none_drawn = draw_galleries(&about, &collector, &galleries, 0);
        assert!(
            none_drawn.html.contains("3 spectra are left out")
                && !none_drawn.html.contains("<article"),
            "{}",
            none_drawn.html
        );
    }
}
