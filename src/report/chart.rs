//! Charts as SVG files, with their own colours and fonts, on white.

use std::fmt::Write;

use super::axis::{Axis, Tick};
use super::number::escape;
use super::words;

/// Colours of series (Okabe & Ito). With more series they repeat.
pub const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#57606c",
];

/// Height of a line of a legend.
const LINE: f64 = 24.0;
/// Approximate width of a character of 16 user units.
const CHARACTER: f64 = 9.0;

/// A point of a chart, in the units of its axes.
#[derive(Clone, Copy)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// A line of a legend.
pub struct LegendEntry<'a> {
    pub colour: &'a str,
    pub text: &'a str,
}

/// Corner and size of the area between a chart's axes, in user units.
#[derive(Clone, Copy)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// Corner of a chart in which the legend stands.
#[derive(Clone, Copy)]
pub enum Corner {
    TopLeft,
    BottomRight,
}

/// Two axes and the SVG elements between them.
pub struct Chart {
    area: Area,
    x: Axis,
    y: Axis,
    body: String,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

impl Chart {
    /// Returns a chart with these axes but nothing drawn, placed in this area of an SVG picture.
    pub fn new(area: Area, x: Axis, y: Axis) -> Chart {
        let (x_ticks, y_ticks) = (x.ticks(9), y.ticks(if area.height > 250.0 { 9 } else { 5 }));
        Chart {
            area,
            x,
            y,
            body: String::new(),
            x_ticks,
            y_ticks,
        }
    }

    /// Replaces the x axis's automatic ticks by these.
    pub fn x_ticks(self, x_ticks: Vec<Tick>) -> Chart {
        Chart { x_ticks, ..self }
    }

    /// Converts a point from values on both axes to (x, y) in SVG units, from the top left corner of the chart's area.
    fn at(&self, point: Point) -> (f64, f64) {
        (
            self.area.width * self.x.place(point.x),
            self.area.height * (1.0 - self.y.place(point.y)),
        )
    }

    /// Draws a line through points, given in values on the axes, in this colour.
    pub fn line(&mut self, points: impl Iterator<Item = Point>, colour: &str) {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.at(point);
            // writing to a String never fails
            let _ = write!(
                path,
                "{}{x:.1} {y:.1}",
                if path.is_empty() { 'M' } else { 'L' }
            );
        }
        let _ = write!(
            self.body,
            "<path d='{path}' fill='none' stroke='{colour}' stroke-width='2'/>"
        );
    }

    /// Draws a disc of radius 4 at each point, given in values on the axes, in this colour.
    pub fn discs(&mut self, points: impl Iterator<Item = Point>, colour: &str) {
        for point in points {
            let (x, y) = self.at(point);
            let _ = write!(
                self.body,
                "<circle cx='{x:.1}' cy='{y:.1}' r='4' fill='{colour}'/>"
            );
        }
    }

    /// Draws a dot 2 units wide at each point, given in values on the axes, in this colour. All dots are one path, as
    /// there may be thousands.
    pub fn dots(&mut self, points: impl Iterator<Item = Point>, colour: &str) {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.at(point);
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        let style = "stroke-width='2' stroke-linecap='round'";
        let _ = write!(
            self.body,
            "<path d='{path}' fill='none' stroke='{colour}' {style}/>"
        );
    }

    /// Draws an SVG path, scaled from its own `width` × `height` to the chart's whole area. `style` has its attributes.
    pub fn stretched(&mut self, path: &str, width: f64, height: f64, style: &str) {
        let _ = write!(
            self.body,
            "<path transform='scale({:.6} {:.6})' vector-effect='non-scaling-stroke' d='{path}' {style}/>",
            self.area.width / width,
            self.area.height / height
        );
    }

    /// Writes a text in the middle of the chart, where nothing is drawn.
    pub fn note(&mut self, text: &str) {
        let (x, y) = (self.area.width / 2.0, self.area.height / 2.0);
        let text = escape(text);
        let _ = write!(
            self.body,
            "<text x='{x:.1}' y='{y:.1}' text-anchor='middle' font-size='17'>{text}</text>"
        );
    }

    /// Draws a legend, one line of colour and text per entry, in a corner of the chart.
    pub fn legend(&mut self, corner: Corner, entries: &[LegendEntry]) {
        let longest = entries
            .iter()
            .map(|entry| entry.text.chars().count())
            .max()
            .unwrap_or(0);
        let (width, height) = (
            54.0 + CHARACTER * longest as f64,
            12.0 + LINE * entries.len() as f64,
        );
        let (x, y) = match corner {
            Corner::TopLeft => (12.0, 12.0),
            Corner::BottomRight => (
                self.area.width - width - 12.0,
                self.area.height - height - 12.0,
            ),
        };
        let _ = write!(
            self.body,
            "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' rx='4' fill='#fff' fill-opacity='.9' \
             stroke='#dde1e7'/>"
        );
        for (k, LegendEntry { colour, text }) in entries.iter().enumerate() {
            let middle = y + 6.0 + LINE * (k as f64 + 0.5);
            let _ = write!(
                self.body,
                "<rect x='{:.1}' y='{:.1}' width='20' height='4' fill='{colour}'/>\
                 <text x='{:.1}' y='{:.1}' font-size='16'>{}</text>",
                x + 10.0,
                middle - 2.0,
                x + 38.0,
                middle + 5.5,
                escape(text)
            );
        }
    }

    /// Returns the chart as SVG elements: title, axes with ticks and labels, and what was drawn.
    pub fn finish(self, title: &str) -> String {
        let Area {
            left,
            top,
            width,
            height,
        } = self.area;
        let mut out = String::new();
        for Tick { place, text } in &self.y_ticks {
            let y = top + height * (1.0 - place);
            let _ = write!(out, "<path d='M{left} {y:.1}h{width}' stroke='#dde1e7'/>");
            let _ = write!(
                out,
                "<text x='{:.1}' y='{:.1}' text-anchor='end' fill='#57606c'>{text}</text>",
                left - 9.0,
                y + 5.5
            );
        }
        for Tick { place, text } in &self.x_ticks {
            let x = left + width * place;
            let _ = write!(out, "<path d='M{x:.1} {top}v{height}' stroke='#dde1e7'/>");
            let _ = write!(
                out,
                "<path d='M{x:.1} {:.1}v5' stroke='#57606c'/>",
                top + height
            );
            if !self.x.label.is_empty() {
                let y = top + height + 23.0;
                let _ = write!(
                    out,
                    "<text x='{x:.1}' y='{y:.1}' text-anchor='middle' fill='#57606c'>{text}</text>"
                );
            }
        }
        let _ = write!(
            out,
            "<svg x='{left}' y='{top}' width='{width}' height='{height}'>{}</svg>",
            self.body
        );
        let _ = write!(
            out,
            "<path d='M{left} {top}v{height}h{width}' fill='none' stroke='#57606c'/>"
        );
        let (x, y) = (left + width / 2.0, top + height / 2.0);
        let _ = write!(
            out,
            "<text x='{x:.1}' y='{:.1}' text-anchor='middle' font-size='17'>{}</text>\
             <text transform='translate({:.1} {y:.1}) rotate(-90)' text-anchor='middle' font-size='17'>{}</text>\
             <text x='{x:.1}' y='{:.1}' text-anchor='middle' font-size='17'>{}</text>",
            top + height + 48.0,
            escape(&self.x.label),
            left - 62.0,
            escape(&self.y.label),
            top - 14.0,
            words::svg(title),
        );
        out
    }
}

/// Wraps SVG elements as the text of an SVG file of `width` × `height` units with a white background.
pub fn file(width: f64, height: f64, charts: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' \
         style='max-width:100%;height:auto' font-family='system-ui, \"Segoe UI\", Roboto, \"Liberation Sans\", sans-serif' font-size='15' fill='#1a1e24'>\
         <rect width='{width}' height='{height}' fill='#fff'/>{charts}</svg>\n"
    )
}
