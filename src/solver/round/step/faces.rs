//! The way of a step through the box: a primal active-set method (Nocedal & Wright 2006, algorithm 16.3). f64. Twin of
//! `shaders/shared/faces.wgsl`; `cpu/lanes/faces.rs` does the same for small fits.
//!
//! The step goes towards the solution for the free parameters as far as the first face of the box. That face holds the
//! parameter that meets it, and the step goes on to the solution for the others. Where a held parameter could gain
//! something, the one that would gain most is let go. The step thus ends where the damped model is lowest in the box. A
//! simpler rule, which holds all parameters that would leave the box, may predict no gain where much is left, and pass
//! for convergence.

use super::equations::on_the_way;
use super::system::System;
use crate::solver::Bounds;

/// Part of a step that lies inside the box so far.
pub struct Way<'a> {
    pub bounds: Bounds<'a>,
    pub delta: Vec<f64>,
    pub free: Vec<bool>,
}

impl Way<'_> {
    /// Moves the step towards `goal` up to the first bound and holds the parameters that meet it; returns whether any
    /// did.
    pub fn meet_faces(&mut self, x: &[f64], goal: &[f64]) -> bool {
        let inside = |p: usize| self.bounds.of(p).share_inside(x[p], self.delta[p], goal[p]);
        let shares: Vec<f64> = (0..x.len())
            .map(|p| if self.free[p] { inside(p) } else { 1.0 })
            .collect();
        let first = shares.iter().copied().fold(1.0, f64::min);
        for p in 0..x.len() {
            self.delta[p] = on_the_way(self.delta[p], goal[p], first);
            if first < 1.0 && shares[p] == first {
                self.delta[p] = self.bounds.of(p).step_to_face(x[p], goal[p]);
                self.free[p] = false;
            }
        }
        first < 1.0
    }

    /// Frees the held parameter with the largest predicted gain, if the cost falls inwards there; returns whether one
    /// was.
    pub fn release(&mut self, system: &System) -> bool {
        let gains: Vec<f64> = (0..self.free.len())
            .map(|p| {
                if self.free[p] {
                    0.0
                } else {
                    self.gain(system, p)
                }
            })
            .collect();
        let most = gains.iter().copied().fold(0.0, f64::max);
        for (free, gain) in self.free.iter_mut().zip(&gains) {
            *free |= most > 0.0 && *gain == most;
        }
        most > 0.0
    }

    /// Returns the cost reduction predicted if parameter p alone is freed from its bound; 0 unless the cost falls
    /// inwards.
    fn gain(&self, system: &System, p: usize) -> f64 {
        let (mut slope, mut size) = (
            system.member.sums.gradient[p],
            system.member.sums.gradient[p].abs(),
        );
        for (q, delta) in self.delta.iter().enumerate() {
            let damping = if q == p { system.damping(p) } else { 0.0 };
            let term = (system.curvature(p, q) + damping) * delta;
            slope -= term;
            size += term.abs();
        }
        let x = system.member.parameters[p] + self.delta[p];
        self.bounds
            .of(p)
            .gain_inwards(x, slope, size, system.diagonal(p))
    }
}

#[cfg(test)]
mod tests {
    use crate::buffers::{LossSums, Sums};
    use crate::math::triangle::{packed_index, packed_length};
    use crate::solver::member::Member;
    use crate::solver::round::step::Rules;
    use crate::solver::round::step::damped::solve;
    use crate::solver::{Bounds, LevenbergMarquardt, Tolerances};

    const COUNT: usize = 4;

    /// Columns that resemble each other, a gradient, and a place in the unit box, here and there on its faces.
    fn member(random: &mut impl FnMut() -> f64) -> Member {
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

    /// 2 gᵀδ − δᵀAδ
    fn fall(member: &Member, delta: &[f64]) -> f64 {
        let row = |p: usize| -> f64 {
            (0..COUNT)
                .map(|q| member.sums.normal_matrix[packed_index(p, q)] * delta[q])
                .sum::<f64>()
        };
        (0..COUNT)
            .map(|p| delta[p] * (2.0 * member.sums.gradient[p] - row(p)))
            .sum()
    }

    /// The same at the best point of the unit box, by going along one parameter after the other until that is it.
    fn most(member: &Member) -> f64 {
        let mut delta = [0.0; COUNT];
        for p in (0..COUNT).cycle().take(COUNT * 100_000) {
            let normal = |q: usize| member.sums.normal_matrix[packed_index(p, q)];
            let slope =
                member.sums.gradient[p] - (0..COUNT).map(|q| normal(q) * delta[q]).sum::<f64>();
            let x = member.parameters[p];
            delta[p] = (x + delta[p] + slope / normal(p)).clamp(-1.0, 1.0) - x;
        }
        fall(member, &delta)
    }

    #[test]
    fn steps_end_at_the_lowest_point_of_the_box() {
        let mut state = 7_u64; // of Knuth's linear congruential sequence, here from −1 to 1
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        };
        let (mut on_faces, settings) =
            (0, LevenbergMarquardt::default().largest_step(f64::INFINITY));
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
            let mut member = member(&mut random);
            let step = solve(&mut member, &[0.0; COUNT], &rules).unwrap();
            let ends: Vec<f64> = step
                .delta
                .iter()
                .zip(&member.parameters)
                .map(|(d, x)| d + x)
                .collect();
            assert!(ends.iter().all(|x| x.abs() <= 1.0 + 1e-12), "{n}: {ends:?}");
            on_faces += ends.iter().filter(|x| x.abs() > 1.0 - 1e-12).count();
            let (promised, most) = (step.predicted_reduction, most(&member));
            assert!(
                (promised - most).abs() <= 1e-6 * most,
                "{n}: {promised} {most} {ends:?}"
            );
        }
        assert!(on_faces > 500, "{on_faces}");
    }
}
