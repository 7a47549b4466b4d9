//! Regions to search in: windows in which the values stand out, steps, and frequencies.

use super::Anchor;
use super::periodogram::find_strongest_waves;
use super::scale::CurvePoints;

/// A region in which the parameters of a model are searched for, in scaled units.
#[derive(Clone, Copy, Debug)]
pub struct SearchRegion {
    pub place: [f64; 2],
    pub width: [f64; 2],
    pub frequency: f64,
    pub damping: f64,
}

/// Region of all points, which lie between −1 and 1.
const WHOLE_RANGE: SearchRegion = SearchRegion {
    place: [0.0; 2],
    width: [1.0; 2],
    frequency: 1.0,
    damping: 0.0,
};

impl SearchRegion {
    /// Returns the regions to search in for an anchor, at least one.
    pub fn find_all(points: &CurvePoints, anchor: Anchor) -> Vec<SearchRegion> {
        match anchor {
            Anchor::Whole | Anchor::Positive { .. } => vec![WHOLE_RANGE],
            Anchor::Peak => [1.0, -1.0]
                .map(|sign| {
                    find_standout(points, 0, sign, WindowKind::Inside)
                        .map_or(WHOLE_RANGE, |peak| peak.place_in(WHOLE_RANGE, 0))
                })
                .to_vec(),
            Anchor::Step => {
                let steps =
                    [1.0, -1.0].map(|sign| find_standout(points, 0, sign, WindowKind::Left));
                let highest_step = steps
                    .into_iter()
                    .flatten()
                    .max_by(|a, b| a.gain.total_cmp(&b.gain));
                vec![
                    SearchRegion {
                        place: [highest_step.map_or(0.0, |step| step.high), 0.0],
                        ..WHOLE_RANGE
                    },
                    WHOLE_RANGE,
                ]
            }
            Anchor::Spot => [1.0, -1.0].map(|sign| find_spot(points, sign)).to_vec(),
            Anchor::Wave => find_strongest_waves(&points.clone().group_for_search(anchor))
                .into_iter()
                .map(|(frequency, damping)| SearchRegion {
                    frequency,
                    damping,
                    ..WHOLE_RANGE
                })
                .collect(),
        }
    }
}

/// Kind of windows that are compared.
#[derive(Clone, Copy, PartialEq)]
enum WindowKind {
    /// Any neighbours, at most three quarters of the places.
    Inside,
    /// The first places, up to any.
    Left,
}

/// Window of neighbouring points whose mean stands out the most, and the χ² that it reduces.
#[derive(Clone, Copy)]
struct Standout {
    low: f64,
    high: f64,
    gain: f64,
}

impl Standout {
    /// Returns the region with the window's middle and width along an axis.
    fn place_in(self, region: SearchRegion, axis: usize) -> SearchRegion {
        let mut region = region;
        region.place[axis] = (self.low + self.high) / 2.0;
        region.width[axis] = self.high - self.low;
        region
    }
}

/// Returns the window of points, sorted by an axis, whose mean m₁ stands out the most above (`sign` 1) or below (−1)
/// the mean m₂ of the others: two levels reduce χ² by n₁n₂/n (m₁ − m₂)². Points at one place stay together. `None` if
/// no mean stands out.
fn find_standout(
    points: &CurvePoints,
    axis: usize,
    sign: f64,
    kind: WindowKind,
) -> Option<Standout> {
    let x = &points.axes[axis];
    let point_count = points.y.len() as f64;
    let mean = points.y.iter().sum::<f64>() / point_count;
    // 1. Gather distinct places, with the numbers of points and the sums of values up to each of them.
    let mut places: Vec<f64> = Vec::new();
    let mut counts: Vec<f64> = vec![0.0];
    let mut sums: Vec<f64> = vec![0.0];
    for (x, y) in x.iter().zip(&points.y) {
        if places.last() != Some(x) {
            places.push(*x);
            counts.push(counts[counts.len() - 1]);
            sums.push(sums[sums.len() - 1]);
        }
        let place_count = places.len();
        counts[place_count] += 1.0;
        sums[place_count] += sign * (y - mean);
    }
    // 2. Borders of windows lie halfway between places, and as far outside the first and the last.
    let last = places.len() - 1;
    let border = |k: usize| match k {
        0 => places[0] - (places[last.min(1)] - places[0]) / 2.0,
        k if k > last => places[last] + (places[last] - places[last.saturating_sub(1)]) / 2.0,
        k => (places[k - 1] + places[k]) / 2.0,
    };
    // 3. Compare all windows of sizes that grow by a third, or of the first places all sizes.
    let mut best = None;
    let mut size = 1;
    while size <= last && (kind == WindowKind::Left || 4 * size <= 3 * (last + 1)) {
        let last_start = if kind == WindowKind::Left {
            0
        } else {
            last + 1 - size
        };
        for start in 0..=last_start {
            let excess = sums[start + size] - sums[start];
            let count = counts[start + size] - counts[start];
            let gain = excess * excess * point_count / (count * (point_count - count));
            if excess > 0.0 && best.is_none_or(|best: Standout| gain > best.gain) {
                best = Some(Standout {
                    low: border(start),
                    high: border(start + size),
                    gain,
                });
            }
        }
        size += if kind == WindowKind::Left {
            1
        } else {
            (size / 3).max(1)
        };
    }
    best
}

/// Returns the rectangle in which the values stand out the most. It narrows windows along one axis and the other in
/// turn, each among the points inside of the previous one.
fn find_spot(points: &CurvePoints, sign: f64) -> SearchRegion {
    let mut region = WHOLE_RANGE;
    let mut inside = points.clone();
    for axis in [0, 1, 0, 1] {
        let sorted_points = inside.sorted_by(axis);
        let Some(window) = find_standout(&sorted_points, axis, sign, WindowKind::Inside) else {
            continue;
        };
        region = window.place_in(region, axis);
        // A window has neighbours along the other axis only if it is as wide as the distance between points.
        let coordinates = &points.axes[axis];
        let [low, high] = [f64::min, f64::max]
            .map(|extreme| coordinates.iter().copied().fold(coordinates[0], extreme));
        let point_distance = (high - low) / (points.y.len() as f64).sqrt();
        region.width[axis] = region.width[axis].max(point_distance);
        let is_inside =
            |j: &usize| (coordinates[*j] - region.place[axis]).abs() <= region.width[axis] / 2.0;
        let inside_indices: Vec<usize> = (0..points.y.len()).filter(is_inside).collect();
        if !inside_indices.is_empty() {
            inside = points.select(&inside_indices);
        }
    }
    region
}
