//! The path of a step through the box of the bounds: a primal active-set method (Nocedal & Wright 2006, algorithm
//! 16.3). f64. Twin of `shaders/shared/faces.wgsl`; `cpu/lanes/faces.rs` does the same for small fits.
//!
//! The step goes towards the solution for the free parameters as far as the first face of the box. That bound becomes
//! active: it holds the parameter that meets it, and the step goes on to the solution for the others. Where releasing
//! held parameters would lower the cost, the one that would gain most is released. The step thus ends where the damped
//! model is lowest in the box. A simpler rule, which holds all parameters that would leave the box, may predict no gain
//! where much is left, and pass for convergence.

use super::equations::interpolate;
use super::system::DampedSystem;
use crate::solver::Bounds;

/// Part of a step that lies inside the box so far, and the parameters that no active bound holds.
pub struct PathInBox<'a> {
    pub bounds: Bounds<'a>,
    pub delta: Vec<f64>,
    pub free: Vec<bool>,
}

impl PathInBox<'_> {
    /// Moves the step towards `goal` up to the first bound and holds the parameters that meet it; returns whether any
    /// did.
    pub fn advance_to_face(&mut self, x: &[f64], goal: &[f64]) -> bool {
        // 1. Find the share of the way to the goal that each parameter can go before it meets a bound.
        let mut shares = vec![1.0; x.len()];
        for p in (0..x.len()).filter(|&p| self.free[p]) {
            shares[p] = self.bounds.of(p).share_inside(x[p], self.delta[p], goal[p]);
        }
        let smallest_share = shares.iter().copied().fold(1.0, f64::min);
        // 2. Go as far as the nearest bound, and hold what meets it exactly there.
        for p in 0..x.len() {
            self.delta[p] = interpolate(self.delta[p], goal[p], smallest_share);
            if smallest_share < 1.0 && shares[p] == smallest_share {
                self.delta[p] = self.bounds.of(p).step_to_face(x[p], goal[p]);
                self.free[p] = false;
            }
        }
        smallest_share < 1.0
    }

    /// Frees the held parameter with the largest predicted gain, if the cost falls inwards there; returns whether one
    /// was.
    pub fn release_best_parameter(&mut self, system: &DampedSystem) -> bool {
        let mut gains = vec![0.0; self.free.len()];
        for p in (0..self.free.len()).filter(|&p| !self.free[p]) {
            gains[p] = self.predict_gain(system, p);
        }
        let largest_gain = gains.iter().copied().fold(0.0, f64::max);
        for (free, gain) in self.free.iter_mut().zip(&gains) {
            *free |= largest_gain > 0.0 && *gain == largest_gain;
        }
        largest_gain > 0.0
    }

    /// Returns the cost reduction predicted if parameter p alone is freed from its bound; 0 unless the cost falls
    /// inwards.
    fn predict_gain(&self, system: &DampedSystem, p: usize) -> f64 {
        // 1. The slope of the damped model at the end of the step, and the size of its terms, whose rounding may decide
        //    its sign.
        let gradient = system.member.sums.gradient[p];
        let mut slope = gradient;
        let mut size_of_terms = gradient.abs();
        for (q, delta) in self.delta.iter().enumerate() {
            let damping = if q == p { system.damping(p) } else { 0.0 };
            let term = (system.curvature(p, q) + damping) * delta;
            slope -= term;
            size_of_terms += term.abs();
        }
        // 2. The gain of the one-parameter minimum.
        let x = system.member.parameters[p] + self.delta[p];
        self.bounds
            .of(p)
            .gain_inwards(x, slope, size_of_terms, system.diagonal(p))
    }
}

#[cfg(test)]
mod tests {
    use crate::buffers::{LossSums, Sums};
    use crate::math::triangle::{packed_index, packed_length};
    use crate::solver::member::Member;
    use crate::solver::round::step::Rules;
    use crate::solver::round::step::damped::solve_damped_step;
    use crate::solver::{Bounds, LevenbergMarquardt, Tolerances};

    const COUNT: usize = 4;

    /// Makes a member with similar columns of the Jacobian, a random gradient, and a point in the unit box, often on
    /// its faces.
    fn random_member(random: &mut impl FnMut() -> f64) -> Member {
        let start: Vec<f64> = (0..COUNT)
            .map(|_| (1.5 * random()).clamp(-1.0, 1.0))
            .collect();
        let columns: Vec<Vec<f64>> = (0..COUNT)
            .map(|_| {
                (0..COUNT)
                    .map(|j| if j == 0 { 1.0 } else { 0.3 * random() })
                    .collect()
            })
            .collect();
        let mut normal_matrix = vec![0.0; packed_length(COUNT)];
        for p in 0..COUNT {
            for q in 0..=p {
                normal_matrix[packed_index(p, q)] =
                    columns[p].iter().zip(&columns[q]).map(|(a, b)| a * b).sum();
            }
        }
        let gradient = (0..COUNT).map(|_| random()).collect();
        let mut member = Member::new(0, 0, &start, 0.0);
        member.sums = Sums {
            chi2: 100.0,
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            gradient,
            normal_matrix,
        };
        member
    }

    /// Returns the reduction that the undamped model predicts, 2 gᵀδ − δᵀAδ.
    fn predicted_reduction(member: &Member, delta: &[f64]) -> f64 {
        (0..COUNT)
            .map(|p| {
                delta[p] * (2.0 * member.sums.gradient[p] - normal_row_product(member, p, delta))
            })
            .sum()
    }

    /// Returns element p of Aδ.
    fn normal_row_product(member: &Member, p: usize, delta: &[f64]) -> f64 {
        (0..COUNT)
            .map(|q| member.sums.normal_matrix[packed_index(p, q)] * delta[q])
            .sum()
    }

    /// Returns the largest predicted reduction in the unit box, found by coordinate descent.
    fn largest_reduction_in_box(member: &Member) -> f64 {
        let mut delta = [0.0; COUNT];
        for p in (0..COUNT).cycle().take(COUNT * 100_000) {
            let slope = member.sums.gradient[p] - normal_row_product(member, p, &delta);
            let diagonal = member.sums.normal_matrix[packed_index(p, p)];
            let x = member.parameters[p];
            delta[p] = (x + delta[p] + slope / diagonal).clamp(-1.0, 1.0) - x;
        }
        predicted_reduction(member, &delta)
    }

    #[test]
    fn steps_end_at_the_lowest_point_of_the_box() {
        let mut state = 7_u64; // of Knuth's linear congruential sequence, scaled to −1 … 1
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        };
        let mut parameters_on_faces = 0;
        let settings = LevenbergMarquardt::default().largest_step(f64::INFINITY);
        let bounds = Bounds {
            lower: &[-1.0; COUNT],
            upper: &[1.0; COUNT],
        };
        let rules = Rules {
            bounds,
            settings: &settings,
            tolerances: Tolerances::of_members(&settings, false, 0.0),
            trusts_last_step: true,
        };
        for n in 0..300 {
            let mut member = random_member(&mut random);
            let step = solve_damped_step(&mut member, &[0.0; COUNT], &rules).unwrap();
            let end: Vec<f64> = step
                .delta
                .iter()
                .zip(&member.parameters)
                .map(|(delta, x)| delta + x)
                .collect();
            assert!(end.iter().all(|x| x.abs() <= 1.0 + 1e-12), "{n}: {end:?}");
            parameters_on_faces += end.iter().filter(|x| x.abs() > 1.0 - 1e-12).count();
            let reduction = step.predicted_reduction;
            let largest = largest_reduction_in_box(&member);
            assert!(
                (reduction - largest).abs() <= 1e-6 * largest,
                "{n}: {reduction} {largest} {end:?}"
            );
        }
        assert!(parameters_on_faces > 500, "{parameters_on_faces}");
    }
}
