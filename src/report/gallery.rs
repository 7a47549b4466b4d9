//! Galleries of spectra as HTML, within the room that the page has for them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::About;
use super::collect::Collector;
use super::number::{count, escape, shortened};
use super::panel::{self, anchor};
use super::spectra::Gallery;

/// HTML of galleries, and the spectra that it shows.
pub struct Drawn {
    pub html: String,
    /// Ids of the spectra, by their places in the input.
    pub ids: BTreeMap<u64, String>,
}

/// Returns the HTML of all galleries, without the spectra that do not fit into `room` bytes, and the ids drawn.
/// Notes say how many are left out.
pub fn draw(about: &About, kept: &Collector, galleries: &[Gallery], room: usize) -> Drawn {
    let mut drawn = Drawn {
        html: String::new(),
        ids: BTreeMap::new(),
    };
    for gallery in galleries {
        let mut cards = String::new();
        let mut left_out = 0;
        for panel in &gallery.panels {
            let card = panel::html(panel, &kept.parameters, about);
            if drawn.html.len() + cards.len() + card.len() > room {
                left_out += 1;
                continue;
            }
            cards += &card;
            drawn.ids.insert(panel.order, panel.row.id.to_string());
        }
        let links = links(gallery, &drawn.ids);
        let note = left_out_note(left_out);
        drawn.html += &section(gallery, &format!("{note}{cards}{links}"));
    }
    drawn
}

/// Wraps a gallery's HTML `body` under a heading of its title and note, collapsed if the gallery is folded; returns
/// nothing for an empty body.
fn section(gallery: &Gallery, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    let (title, note) = (escape(&gallery.title), escape(&gallery.note));
    if gallery.folded {
        return format!(
            "<details class='spectra folded'><summary><b>{title}</b> <small>{note}</small></summary>{body}</details>"
        );
    }
    format!("<section class=spectra><h2>{title} <small>{note}</small></h2>{body}</section>")
}

/// Returns HTML links to the gallery's spectra that are drawn in an earlier one; empty if there are none.
fn links(gallery: &Gallery, drawn: &BTreeMap<u64, String>) -> String {
    let mut out = String::new();
    for order in &gallery.elsewhere {
        if let Some(id) = drawn.get(order) {
            let comma = if out.is_empty() { "" } else { ", " };
            let _ = write!(
                out,
                "{comma}<a href='#{}'>{}</a>",
                anchor(*order),
                escape(&shortened(id))
            );
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("<p class=note>Drawn above: {out}.</p>")
    }
}

/// Returns an HTML note that this many spectra are left out because the page would be too large; empty for 0.
fn left_out_note(spectra: usize) -> String {
    match spectra {
        0 => String::new(),
        1 => "<p class=note>One spectrum is left out: the page would be too large.</p>".into(),
        n => format!(
            "<p class=note>{} spectra are left out: the page would be too large.</p>",
            count(n as u64)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::panel::Panel;
    use super::*;
    use crate::solver::Status;
    use crate::spectral::{ArmFit, FitRow};

    fn panel(order: u64) -> Panel {
        let row = FitRow {
            file: "a.npz".into(),
            row: order,
            status: Status::BadInput,
            status_text: "no_data".into(),
            ..FitRow::new(100 + order as i64, 0)
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
        Panel {
            order,
            row,
            arms: vec![arm],
            velocity: f64::NAN,
        }
    }

    fn gallery(orders: &[u64], elsewhere: &[u64]) -> Gallery {
        let panels = orders.iter().map(|order| panel(*order)).collect();
        Gallery {
            title: "A <b>".into(),
            note: String::new(),
            folded: true,
            panels,
            elsewhere: elsewhere.to_vec(),
        }
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_nothing_links_to_it() {
        let (about, kept) = (About::default(), Collector::new(&[]));
        let galleries = [gallery(&[0, 1, 2], &[]), gallery(&[], &[1, 2])];
        let whole = draw(&about, &kept, &galleries, usize::MAX);
        assert_eq!(whole.ids.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(
            whole
                .html
                .contains("<a href='#s1'>101</a>, <a href='#s2'>102</a>"),
            "{}",
            whole.html
        );
        assert!(whole.html.contains("A &lt;b&gt;") && !whole.html.contains("left out"));

        let room = 2 * panel::html(&panel(0), &[], &About::default()).len() + 10;
        let less = draw(&about, &kept, &galleries, room);
        assert_eq!(less.ids.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert!(
            less.html.contains("One spectrum is left out") && !less.html.contains("#s2"),
            "{}",
            less.html
        );
        let none = draw(&about, &kept, &galleries, 0);
        assert!(
            none.html.contains("3 spectra are left out") && !none.html.contains("<article"),
            "{}",
            none.html
        );
    }
}
