//! Charts as SVG files, with their own colours and fonts, on white.

use std::fmt::Write;

use super::axis::{PlotAxis, Tick};
use super::number::escape_html;
use super::words;

/// Colours of series (Okabe & Ito). With more series they repeat.
pub const SERIES_COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#57606c",
];

/// Height of a line of a legend.
const LEGEND_LINE_HEIGHT: f64 = 24.0;
/// Approximate width of a character of 16 user units.
const LEGEND_CHARACTER_WIDTH: f64 = 9.0;

/// A point of a chart, in the units of its axes.
#[derive(Clone, Copy)]
pub struct ChartPoint {
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
    x: PlotAxis,
    y: PlotAxis,
    body: String,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

impl Chart {
    /// Returns a chart with these axes but nothing drawn, placed in this area of an SVG picture.
    pub fn new(area: Area, x: PlotAxis, y: PlotAxis) -> Chart {
        let x_ticks = x.choose_ticks(9);
        let y_ticks = y.choose_ticks(if area.height > 250.0 { 9 } else { 5 });
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
    pub fn with_x_ticks(self, x_ticks: Vec<Tick>) -> Chart {
        Chart { x_ticks, ..self }
    }

    /// Converts a point from values on both axes to (x, y) in SVG units, from the top left corner of the chart's area.
    fn to_svg(&self, point: ChartPoint) -> (f64, f64) {
        (
            self.area.width * self.x.fraction_of(point.x),
            self.area.height * (1.0 - self.y.fraction_of(point.y)),
        )
    }

    /// Draws a line through points, given in values on the axes, in this colour.
    pub fn draw_line(&mut self, points: impl Iterator<Item = ChartPoint>, colour: &str) {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.to_svg(point);
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
    pub fn draw_discs(&mut self, points: impl Iterator<Item = ChartPoint>, colour: &str) {
        for point in points {
            let (x, y) = self.to_svg(point);
            let _ = write!(
                self.body,
                "<circle cx='{x:.1}' cy='{y:.1}' r='4' fill='{colour}'/>"
            );
        }
    }

    /// Draws a dot 2 units wide at each point, given in values on the axes, in this colour. All dots are one path, as
    /// there may be thousands.
    pub fn draw_dots(&mut self, points: impl Iterator<Item = ChartPoint>, colour: &str) {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.to_svg(point);
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        let style = "stroke-width='2' stroke-linecap='round'";
        let _ = write!(
            self.body,
            "<path d='{path}' fill='none' stroke='{colour}' {style}/>"
        );
    }

    /// Draws an SVG path, scaled from its own `width` × `height` to the chart's whole area. `style` has its attributes.
    pub fn draw_path(&mut self, path: &str, width: f64, height: f64, style: &str) {
        let _ = write!(
            self.body,
            "<path transform='scale({:.6} {:.6})' vector-effect='non-scaling-stroke' d='{path}' {style}/>",
            self.area.width / width,
            self.area.height / height
        );
    }

    /// Writes a text in the middle of the chart, where nothing is drawn.
    pub fn write_note(&mut self, text: &str) {
        let x = self.area.width / 2.0;
        let y = self.area.height / 2.0;
        let text = escape_html(text);
        let _ = write!(
            self.body,
            "<text x='{x:.1}' y='{y:.1}' text-anchor='middle' font-size='17'>{text}</text>"
        );
    }

    /// Draws a legend, one line of colour and text per entry, in a corner of the chart.
    pub fn draw_legend(&mut self, corner: Corner, entries: &[LegendEntry]) {
        // 1. The size follows from the texts.
        let longest_text = entries
            .iter()
            .map(|entry| entry.text.chars().count())
            .max()
            .unwrap_or(0);
        let width = 54.0 + LEGEND_CHARACTER_WIDTH * longest_text as f64;
        let height = 12.0 + LEGEND_LINE_HEIGHT * entries.len() as f64;
        // 2. Draw the background in the corner.
        let (left, top) = match corner {
            Corner::TopLeft => (12.0, 12.0),
            Corner::BottomRight => (
                self.area.width - width - 12.0,
                self.area.height - height - 12.0,
            ),
        };
        let _ = write!(
            self.body,
            "<rect x='{left:.1}' y='{top:.1}' width='{width:.1}' height='{height:.1}' rx='4' fill='#fff' fill-opacity='.9' \
             stroke='#dde1e7'/>"
        );
        // 3. Draw a line per entry.
        for (line, LegendEntry { colour, text }) in entries.iter().enumerate() {
            let middle = top + 6.0 + LEGEND_LINE_HEIGHT * (line as f64 + 0.5);
            let _ = write!(
                self.body,
                "<rect x='{:.1}' y='{:.1}' width='20' height='4' fill='{colour}'/>\
                 <text x='{:.1}' y='{:.1}' font-size='16'>{}</text>",
                left + 10.0,
                middle - 2.0,
                left + 38.0,
                middle + 5.5,
                escape_html(text)
            );
        }
    }

    /// Returns the chart as SVG elements: title, axes with ticks and labels, and what was drawn.
    pub fn into_svg(self, title: &str) -> String {
        let Area {
            left,
            top,
            width,
            height,
        } = self.area;
        let mut svg = String::new();
        // 1. Grid lines and tick labels of both axes.
        for Tick { fraction, text } in &self.y_ticks {
            let y = top + height * (1.0 - fraction);
            let _ = write!(svg, "<path d='M{left} {y:.1}h{width}' stroke='#dde1e7'/>");
            let _ = write!(
                svg,
                "<text x='{:.1}' y='{:.1}' text-anchor='end' fill='#57606c'>{text}</text>",
                left - 9.0,
                y + 5.5
            );
        }
        for Tick { fraction, text } in &self.x_ticks {
            let x = left + width * fraction;
            let _ = write!(svg, "<path d='M{x:.1} {top}v{height}' stroke='#dde1e7'/>");
            let _ = write!(
                svg,
                "<path d='M{x:.1} {:.1}v5' stroke='#57606c'/>",
                top + height
            );
            if !self.x.label.is_empty() {
                let y = top + height + 23.0;
                let _ = write!(
                    svg,
                    "<text x='{x:.1}' y='{y:.1}' text-anchor='middle' fill='#57606c'>{text}</text>"
                );
            }
        }
        // 2. The drawing, cut at the edges of its area, and the axes over it.
        let _ = write!(
            svg,
            "<svg x='{left}' y='{top}' width='{width}' height='{height}'>{}</svg>",
            self.body
        );
        let _ = write!(
            svg,
            "<path d='M{left} {top}v{height}h{width}' fill='none' stroke='#57606c'/>"
        );
        // 3. The labels of the axes and the title.
        let middle_x = left + width / 2.0;
        let middle_y = top + height / 2.0;
        let _ = write!(
            svg,
            "<text x='{middle_x:.1}' y='{:.1}' text-anchor='middle' font-size='17'>{}</text>\
             <text transform='translate({:.1} {middle_y:.1}) rotate(-90)' text-anchor='middle' font-size='17'>{}</text>\
             <text x='{middle_x:.1}' y='{:.1}' text-anchor='middle' font-size='17'>{}</text>",
            top + height + 48.0,
            escape_html(&self.x.label),
            left - 62.0,
            escape_html(&self.y.label),
            top - 14.0,
            words::svg_with_subscript(title),
        );
        svg
    }
}

/// Wraps SVG elements as the text of an SVG file of `width` × `height` units with a white background.
pub fn svg_file(width: f64, height: f64, charts: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' \
         style='max-width:100%;height:auto' font-family='system-ui, \"Segoe UI\", Roboto, \"Liberation Sans\", sans-serif' font-size='15' fill='#1a1e24'>\
         <rect width='{width}' height='{height}' fill='#fff'/>{charts}</svg>\n"
    )
}
