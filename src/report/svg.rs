//! The frame of a small figure. Its width in user units is about that of a phone in pixels, so that its text is never
//! tiny.

use std::fmt::Write;

use super::axis::{PlotAxis, Tick};
use super::number::escape_html;
use super::words;

pub const FIGURE_WIDTH: f64 = 400.0;
pub const FIGURE_HEIGHT: f64 = 270.0;
const LEFT_MARGIN: f64 = 48.0;
const RIGHT_MARGIN: f64 = 12.0;
const TOP_MARGIN: f64 = 10.0;
const BOTTOM_MARGIN: f64 = 44.0;

/// Two axes and the SVG elements between them.
pub struct FigureFrame {
    pub x: PlotAxis,
    pub y: PlotAxis,
    body: String,
}

impl FigureFrame {
    /// Returns an empty figure with these axes, to draw into.
    pub fn new(x: PlotAxis, y: PlotAxis) -> FigureFrame {
        FigureFrame {
            x,
            y,
            body: String::new(),
        }
    }

    /// Converts a value of the x axis to an SVG x coordinate in the figure.
    pub fn svg_x(&self, x: f64) -> f64 {
        LEFT_MARGIN + self.x.fraction_of(x) * (FIGURE_WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
    }

    /// Converts a value of the y axis to an SVG y coordinate, which grows downwards.
    pub fn svg_y(&self, y: f64) -> f64 {
        FIGURE_HEIGHT
            - BOTTOM_MARGIN
            - self.y.fraction_of(y) * (FIGURE_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN)
    }

    /// Returns (left, top, width, height) of the plot inside the axes, in SVG units.
    pub fn inner_area() -> (f64, f64, f64, f64) {
        (
            LEFT_MARGIN,
            TOP_MARGIN,
            FIGURE_WIDTH - LEFT_MARGIN - RIGHT_MARGIN,
            FIGURE_HEIGHT - TOP_MARGIN - BOTTOM_MARGIN,
        )
    }

    /// Appends SVG elements, in SVG units, to the drawing inside the axes.
    pub fn draw(&mut self, elements: std::fmt::Arguments) {
        // writing to a String never fails
        let _ = self.body.write_fmt(elements);
    }

    /// Returns the HTML figure with title, axes, drawing and, below it, a note unless that is empty.
    pub fn into_html(self, title: &str, note: &str) -> String {
        let mut axes = String::new();
        let (left, top, width, height) = FigureFrame::inner_area();
        // 1. Grid lines and tick labels of the y axis.
        for Tick { fraction, text } in self.y.choose_ticks(5) {
            let y = top + height * (1.0 - fraction);
            let _ = write!(axes, "<path class=grid d='M{left} {y:.1}h{width}'/>");
            let _ = write!(
                axes,
                "<text class=tick x={:.1} y={:.1} text-anchor=end>{text}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        // 2. Ticks and tick labels of the x axis.
        for Tick { fraction, text } in self.x.choose_ticks(5) {
            let x = left + width * fraction;
            let _ = write!(axes, "<path class=axis d='M{x:.1} {:.1}v4'/>", top + height);
            let _ = write!(
                axes,
                "<text class=tick x={x:.1} y={:.1} text-anchor=middle>{text}</text>",
                top + height + 17.0
            );
        }
        // 3. The labels of both axes, and the figure around all.
        let x_label = words::svg_with_subscript(&self.x.label);
        let y_label = words::svg_with_subscript(&self.y.label);
        let _ = write!(
            axes,
            "<path class=axis d='M{left} {:.1}h{width}'/>\
             <text class=label x={:.1} y={:.1} text-anchor=middle>{x_label}</text>\
             <text class=label transform='translate(12 {:.1}) rotate(-90)' text-anchor=middle>{y_label}</text>",
            top + height,
            left + width / 2.0,
            FIGURE_HEIGHT - 8.0,
            top + height / 2.0,
        );
        let body = self.body;
        let caption = words::html_with_subscript(title);
        let title = escape_html(title);
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("<p class=note>{note}</p>")
        };
        format!(
            "<figure class=card><figcaption>{caption}</figcaption>\
             <svg viewBox='0 0 {FIGURE_WIDTH} {FIGURE_HEIGHT}' role=img aria-label='{title}'>{axes}{body}</svg>{note}</figure>"
        )
    }
}

/// Returns an HTML figure that shows only its title and the reason `reason` there is nothing to plot.
pub fn draw_empty_figure(title: &str, reason: &str) -> String {
    let title = words::html_with_subscript(title);
    format!(
        "<figure class=card><figcaption>{title}</figcaption><p class=nothing>{}</p></figure>",
        escape_html(reason)
    )
}
