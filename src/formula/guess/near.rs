//! Places to look at: windows in which the values stand out, steps, and frequencies.

use super::Anchor;
use super::periodogram::strongest;
use super::scale::Points;

/// A place to look at, in scaled units.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    pub place: [f64; 2],
    pub width: [f64; 2],
    pub frequency: f64,
    pub damping: f64,
}

/// All points.
const WHOLE: Near = Near {
    place: [0.0; 2],
    width: [1.0; 2],
    frequency: 1.0,
    damping: 0.0,
};

impl Near {
    /// Returns the places to look at for an anchor, at least one.
    pub fn find(points: &Points, anchor: Anchor) -> Vec<Near> {
        match anchor {
            Anchor::Whole | Anchor::Positive { .. } => vec![WHOLE],
            Anchor::Peak => {
                let found = [1.0, -1.0].map(|sign| window(points, 0, sign, Window::Inside));
                found
                    .map(|found| found.map_or(WHOLE, |found| found.within(WHOLE, 0)))
                    .to_vec()
            }
            Anchor::Step => {
                let step = [1.0, -1.0].map(|sign| window(points, 0, sign, Window::Left));
                let best = step
                    .into_iter()
                    .flatten()
                    .max_by(|a, b| a.gain.total_cmp(&b.gain));
                vec![
                    Near {
                        place: [best.map_or(0.0, |step| step.high), 0.0],
                        ..WHOLE
                    },
                    WHOLE,
                ]
            }
            Anchor::Spot => [1.0, -1.0].map(|sign| spot(points, sign)).to_vec(),
            Anchor::Wave => {
                let waves = strongest(&points.clone().grouped(anchor));
                waves
                    .into_iter()
                    .map(|(frequency, damping)| Near {
                        frequency,
                        damping,
                        ..WHOLE
                    })
                    .collect()
            }
        }
    }
}

/// Kind of windows that are compared.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    /// Any neighbours, at most three quarters of the places.
    Inside,
    /// The first places, up to any.
    Left,
}

/// Neighbours among the points whose mean stands out the most.
#[derive(Clone, Copy)]
struct Found {
    low: f64,
    high: f64,
    gain: f64,
}

impl Found {
    /// Returns a place with the window's middle and width along an axis.
    fn within(self, near: Near, axis: usize) -> Near {
        let mut near = near;
        near.place[axis] = (self.low + self.high) / 2.0;
        near.width[axis] = self.high - self.low;
        near
    }
}

/// Returns the window of points, sorted by an axis, whose mean m₁ stands out the most above (`sign` 1) or below (−1)
/// the mean m₂ of the others: two levels reduce χ² by n₁n₂/n (m₁ − m₂)². Points at one place stay together. `None` if
/// no mean stands out.
fn window(points: &Points, axis: usize, sign: f64, kind: Window) -> Option<Found> {
    let (x, n) = (&points.axes[axis], points.y.len() as f64);
    let mean = points.y.iter().sum::<f64>() / n;
    // 1. places, and numbers and sums of the points before each of them
    let (mut places, mut counts, mut sums): (Vec<f64>, Vec<f64>, Vec<f64>) =
        (Vec::new(), vec![0.0], vec![0.0]);
    for (x, y) in x.iter().zip(&points.y) {
        if places.last() != Some(x) {
            places.push(*x);
            counts.push(counts[counts.len() - 1]);
            sums.push(sums[sums.len() - 1]);
        }
        let last = places.len();
        counts[last] += 1.0;
        sums[last] += sign * (y - mean);
    }
    // 2. borders are halfway between places, and as far outside the first and the last
    let last = places.len() - 1;
    let border = |k: usize| match k {
        0 => places[0] - (places[last.min(1)] - places[0]) / 2.0,
        k if k > last => places[last] + (places[last] - places[last.saturating_sub(1)]) / 2.0,
        k => (places[k - 1] + places[k]) / 2.0,
    };
    // 3. all windows of sizes that grow by a third
    let mut best = None;
    let mut size = 1;
    while size <= last && (kind == Window::Left || 4 * size <= 3 * (last + 1)) {
        for first in 0..=if kind == Window::Left {
            0
        } else {
            last + 1 - size
        } {
            let (excess, count) = (
                sums[first + size] - sums[first],
                counts[first + size] - counts[first],
            );
            let gain = excess * excess * n / (count * (n - count));
            if excess > 0.0 && best.is_none_or(|best: Found| gain > best.gain) {
                best = Some(Found {
                    low: border(first),
                    high: border(first + size),
                    gain,
                });
            }
        }
        size += if kind == Window::Left {
            1
        } else {
            (size / 3).max(1)
        };
    }
    best
}

/// Returns the rectangle in which values stand out the most: windows along one axis and the other in turn, each of the
/// points in the last.
fn spot(points: &Points, sign: f64) -> Near {
    let mut near = WHOLE;
    let mut inside = points.clone();
    for axis in [0, 1, 0, 1] {
        let Some(found) = window(&inside.sorted_by(axis), axis, sign, Window::Inside) else {
            continue;
        };
        near = found.within(near, axis);
        // a window has neighbours along the other axis only if it is as wide as the distance between points
        let [low, high] = [f64::min, f64::max].map(|end| {
            points.axes[axis]
                .iter()
                .copied()
                .fold(points.axes[axis][0], end)
        });
        near.width[axis] = near.width[axis].max((high - low) / (points.y.len() as f64).sqrt());
        let is_inside =
            |j: &usize| (points.axes[axis][*j] - near.place[axis]).abs() <= near.width[axis] / 2.0;
        let kept: Vec<usize> = (0..points.y.len()).filter(is_inside).collect();
        if !kept.is_empty() {
            inside = points.select(&kept);
        }
    }
    near
}
