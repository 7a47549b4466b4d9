//! The frame of a small figure. Its width in user units is about that of a phone in pixels, so that its text is never
//! tiny.

use std::fmt::Write;

use super::axis::{Axis, Tick};
use super::number::escape;
use super::words;

pub const WIDTH: f64 = 400.0;
pub const HEIGHT: f64 = 270.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

/// Two axes and the SVG elements between them.
pub struct Frame {
    pub x: Axis,
    pub y: Axis,
    body: String,
}

impl Frame {
    /// Returns an empty figure with these axes, to draw into.
    pub fn new(x: Axis, y: Axis) -> Frame {
        Frame {
            x,
            y,
            body: String::new(),
        }
    }

    /// Converts a value of the x axis to an SVG x coordinate in the figure.
    pub fn at_x(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
    }

    /// Converts a value of the y axis to an SVG y coordinate, which grows downwards.
    pub fn at_y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM)
    }

    /// Returns (left, top, width, height) of the plot inside the axes, in SVG units.
    pub fn inner() -> (f64, f64, f64, f64) {
        (LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)
    }

    /// Appends SVG elements, in SVG units, to what is drawn inside the axes.
    pub fn draw(&mut self, elements: std::fmt::Arguments) {
        // writing to a String never fails
        let _ = self.body.write_fmt(elements);
    }

    /// Returns the HTML figure with title, axes, drawing and, below it, a note unless that is empty.
    pub fn finish(self, title: &str, note: &str) -> String {
        let mut axes = String::new();
        let (left, top, width, height) = Frame::inner();
        for Tick { place, text } in self.y.ticks(5) {
            let y = top + height * (1.0 - place);
            let _ = write!(axes, "<path class=grid d='M{left} {y:.1}h{width}'/>");
            let _ = write!(
                axes,
                "<text class=tick x={:.1} y={:.1} text-anchor=end>{text}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        for Tick { place, text } in self.x.ticks(5) {
            let x = left + width * place;
            let _ = write!(axes, "<path class=axis d='M{x:.1} {:.1}v4'/>", top + height);
            let _ = write!(
                axes,
                "<text class=tick x={x:.1} y={:.1} text-anchor=middle>{text}</text>",
                top + height + 17.0
            );
        }
        let (x_label, y_label) = (words::svg(&self.x.label), words::svg(&self.y.label));
        let _ = write!(
            axes,
            "<path class=axis d='M{left} {:.1}h{width}'/>\
             <text class=label x={:.1} y={:.1} text-anchor=middle>{x_label}</text>\
             <text class=label transform='translate(12 {:.1}) rotate(-90)' text-anchor=middle>{y_label}</text>",
            top + height,
            left + width / 2.0,
            HEIGHT - 8.0,
            top + height / 2.0,
        );
        let (body, caption, title) = (self.body, words::html(title), escape(title));
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("<p class=note>{note}</p>")
        };
        format!(
            "<figure class=card><figcaption>{caption}</figcaption>\
             <svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='{title}'>{axes}{body}</svg>{note}</figure>"
        )
    }
}

/// Returns an HTML figure that shows only its title and the reason `why` there is nothing to plot.
pub fn nothing(title: &str, why: &str) -> String {
    let title = words::html(title);
    format!(
        "<figure class=card><figcaption>{title}</figcaption><p class=nothing>{}</p></figure>",
        escape(why)
    )
}
