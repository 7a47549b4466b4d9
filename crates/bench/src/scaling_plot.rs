//! Cost by axis: four panels, with a line for each device, as SVG.

use popfit::low_level::report::picture::{CostPanel, draw_costs};
use popfit::{OutputFile, Result};

use super::scaling::{Axis, Point};

/// Writes an SVG plot of the time per fit (ms) by the values of each axis, with a line per device. Both axes begin at
/// zero, except that the number of spectra goes by powers of two.
pub fn draw(file: OutputFile, points: &[Point]) -> Result<()> {
    let panel = |axis: Axis| {
        let own: Vec<&Point> = points.iter().filter(|point| point.axis == axis).collect();
        CostPanel {
            axis: axis.name(),
            by_powers: axis == Axis::Spectra,
            lines: lines(&own),
        }
    };
    file.write(draw_costs(&Axis::ALL.map(panel)))
}

/// Groups points by device: for each device's name, (value on the axis, ms per fit) of its points.
fn lines(points: &[&Point]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for point in points {
        let place = (point.value as f64, point.milliseconds_per_fit);
        match lines.iter_mut().find(|(device, _)| *device == point.device) {
            Some((_, line)) => line.push(place),
            None => lines.push((point.device.clone(), vec![place])),
        }
    }
    lines
}
