//! Tests of first guesses on the demo's spectra, and what other tests of this room need of them.

use super::*;
use crate::math::triangle::{cholesky, packed_index, solve_lower};
use crate::model::continuum::inner_product;
use crate::model::{PreparedArm, RawArm, prepare_spectrum};
use crate::spectra::Wavelength;
use crate::{Continuum, Emulator, Spectra};

/// χ² of a template with its own lines at all fine velocities.
fn own_scores(guess: &FirstGuess, template: usize, signals: &[Signals]) -> Vec<f32> {
    let mut scores = vec![0.0; guess.fine.len()];
    for (unit, signals) in guess.units.iter().zip(signals) {
        unit.add_exact_scores(template, signals, 0..guess.fine.len(), &mut scores);
    }
    scores
}

pub fn demo() -> (SpectralModel, FirstGuess, Spectra<'static>) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
    let builder = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0);
    let model = builder.continuum(Continuum::rbf(10)).build().unwrap();
    let guess = FirstGuess::new(&model, 3).unwrap();
    (
        model,
        guess,
        Spectra::open(format!("{data}/spectra.npz"))
            .unwrap()
            .slice(0..16),
    )
}

pub fn all_prepared(model: &SpectralModel, spectra: &Spectra) -> (Sampling, Vec<Prepared>) {
    let arm = &spectra.arms[0];
    let Wavelength::Shared(grid) = &arm.wavelength else {
        panic!("one grid")
    };
    let sampling = Sampling::new(&model.arms[0], grid, &[], 0).unwrap();
    let pixels = |k: usize| k * arm.pixels..(k + 1) * arm.pixels;
    let raw = (0..arm.len()).map(|k| {
        let (flux, ivar) = (arm.flux.double(pixels(k)), arm.ivar.double(pixels(k)));
        RawArm {
            wavelength: arm.grid(k),
            flux,
            ivar,
            mask: &[],
            resolution: None,
        }
    });
    let prepared = raw
        .map(|raw| prepare_spectrum(model, &[raw], &[&sampling], None).unwrap())
        .collect();
    (sampling, prepared)
}

/// However few the velocities at which a template is looked at: a start lies where its own lines fit best of all
/// velocities, and between these.
#[test]
fn starts_lie_where_their_own_lines_say() {
    let (model, guess, spectra) = demo();
    let (sampling, all) = all_prepared(&model, &spectra);
    let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
    let velocity = model.free_velocity().unwrap();
    for prepared in all {
        let signals = guess.signals(
            &prepared,
            &smooths(&prepared, &[&sampling]),
            &[&sampling],
            &limits,
        );
        let starts = guess.starts(&prepared, &[&sampling], &limits, Some(2));
        assert_eq!(starts.len(), 2);
        for start in &starts {
            let is_its = |u: &Vec<f64>| (0..u.len()).all(|p| p == velocity || u[p] == start.u[p]);
            let template = guess.parameters.iter().position(is_its).unwrap();
            let scores = own_scores(&guess, template, &signals);
            let lowest = (0..scores.len())
                .min_by(|a, b| scores[*a].total_cmp(&scores[*b]))
                .unwrap();
            let found = model.parameters[velocity].to_physical(start.u[velocity]);
            let half = 0.5 * (guess.fine[1] - guess.fine[0]) + 1e-2;
            assert!(
                (found - guess.fine[lowest]).abs() <= half,
                "{found} {}",
                guess.fine[lowest]
            );
            assert_ne!(found, guess.fine[lowest], "not between velocities");
        }
    }
}

/// χ² + ln det A of a template shifted by so many of its pixels, its continuum fitted to the spectrum's pixels
/// themselves.
fn refitted(arm: &PreparedArm, sampling: &Sampling, flux: &[f32], shift: f64) -> f64 {
    let pixels = sampling.pixels;
    let template = |j: usize| {
        let place =
            f64::from(sampling.index[j] & 0xff_ffff) + f64::from(sampling.fraction[j]) - shift;
        let place = place.clamp(0.0, flux.len() as f64 - 1.001);
        let (at, f) = (place as usize, place.fract());
        f64::from(flux[at]) * (1.0 - f) + f64::from(flux[at + 1]) * f
    };
    let (stride, data) = (arm.weight.len(), &arm.data[..pixels]);
    let row = |k: usize| -> Vec<f64> {
        let basis = &arm.basis(sampling)[k * stride..][..pixels];
        (0..pixels)
            .map(|j| f64::from(basis[j] * arm.weight[j]) * template(j))
            .collect()
    };
    let rows: Vec<Vec<f64>> = (0..arm.rank).map(row).collect();
    let mut normal: Vec<f64> = (0..arm.rank)
        .flat_map(|i| (0..=i).map(move |j| (i, j)))
        .map(|(i, j)| inner_product(&rows[i], &rows[j]))
        .collect();
    let data: Vec<f64> = data.iter().map(|d| f64::from(*d)).collect();
    let mut slopes: Vec<f64> = rows.iter().map(|row| inner_product(row, &data)).collect();
    assert!(cholesky(&mut normal, arm.rank));
    solve_lower(&normal, &mut slopes);
    let ln_det: f64 = (0..arm.rank)
        .map(|k| 2.0 * normal[packed_index(k, k)].ln())
        .sum();
    inner_product(&data, &data) - inner_product(&slopes, &slopes) + ln_det
}

/// Sums in bins rank templates as a fit of the continuum to the pixels does.
#[test]
fn templates_are_judged_with_a_continuum_of_their_own() {
    let (model, guess, spectra) = demo();
    let (sampling, all) = all_prepared(&model, &spectra);
    let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
    let (arm, free) = (&model.arms[0], model.free_velocity().unwrap());
    let labels: Vec<f64> = guess
        .parameters
        .iter()
        .flat_map(|u| physical_labels(&model, arm, u))
        .collect();
    let flux = arm.emulator.templates(&labels);
    for prepared in all.iter().take(6) {
        let start = &guess.starts(prepared, &[&sampling], &limits, Some(1))[0];
        let velocity = model.parameters[free].to_physical(start.u[free]);
        let smooth = smooths(prepared, &[&sampling]);
        let signals = guess.signals(prepared, &smooth, &[&sampling], &limits);
        let mut candidates: Vec<Candidate> = (0..guess.parameters.len())
            .map(|template| Candidate {
                template,
                velocity,
                score: 0.0,
            })
            .collect();
        let (prepared, smooth) = (&prepared.arms[0], &smooth[0]);
        let one = Arm {
            place: 0,
            prepared,
            smooth,
            sampling: &sampling,
            units: &guess.units,
            signals: &signals,
        };
        Refit::new(one, true).add_scores(&mut candidates);
        let shift = (velocity / LIGHT).atanh() / arm.grid.segments[0].step;
        let exact = flux
            .chunks(arm.emulator.pixels())
            .map(|flux| refitted(prepared, &sampling, flux, shift));
        let best = exact
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap()
            .0;
        let rank = candidates
            .iter()
            .filter(|one| one.score < candidates[best].score)
            .count();
        assert!(rank < 4, "{rank} templates are better");
    }
}

/// Templates that were not looked at again serve when more starts are wanted than those give.
#[test]
fn many_starts_are_distinct() {
    let (model, guess, spectra) = demo();
    let (sampling, all) = all_prepared(&model, &spectra);
    let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
    let of = |count| guess.starts(&all[0], &[&sampling], &limits, Some(count));
    let (few, many) = (of(2), of(64));
    assert!(many.len() == 64 && many[..2] == few);
    let short = guess.parameters.len().div_ceil(SHORT);
    // those that are near are not all distinct
    assert!(many.len() >= short);
    let is_again = |k: &usize| many[..*k].contains(&many[*k]);
    assert_eq!((0..64).find(is_again), None);
}

/// The less of a spectrum counts, the more starts it has; an explicit number still holds.
#[test]
fn scarce_data_have_many_starts() {
    for (share, starts) in [(0.5, 1..=8), (0.1, MOST_STARTS..=MOST_STARTS)] {
        let (model, guess, mut spectra) = demo();
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let arm = &mut spectra.arms[0];
        let masked = (arm.pixels as f64 * (1.0 - share)) as usize;
        arm.ivar
            .to_mut()
            .chunks_mut(arm.pixels)
            .for_each(|ivar| ivar[..masked].fill(0.0));
        let (sampling, all) = all_prepared(&model, &spectra);
        for prepared in &all {
            assert!(!prepared.arms[0].has_grid_basis());
            let of = |count| guess.starts(prepared, &[&sampling], &limits, count).len();
            assert_eq!(of(Some(3)), 3);
            assert!(starts.contains(&of(None)), "{}", of(None));
        }
    }
}

/// Templates are judged at the one velocity that bounds or a start leave, wherever the parabola of the first look
/// has led.
#[test]
fn templates_are_looked_at_inside_the_bounds() {
    let (model, guess, spectra) = demo();
    let (sampling, all) = all_prepared(&model, &spectra);
    let all_limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
    let signals = guess.signals(
        &all[0],
        &smooths(&all[0], &[&sampling]),
        &[&sampling],
        &all_limits,
    );
    let own = own_scores(&guess, 5, &signals);
    let velocity = &model.parameters[model.free_velocity().unwrap()];
    for (k, &at) in guess.fine.iter().enumerate() {
        let only = Limits {
            start: Some(at),
            ..limits(velocity)
        };
        let look = Look::new(&guess.fine, Some(&only));
        for beyond in [-200.0, -110.0, 0.0, 110.0, 200.0] {
            let mut candidate = Candidate {
                template: 5,
                velocity: at + beyond,
                score: f32::NAN,
            };
            look.look_closer(&mut candidate, &guess.units, &signals);
            assert!(
                (candidate.score - own[k]).abs() <= 1e-4 * own[k].abs(),
                "{at} {beyond}: {}",
                candidate.score
            );
        }
    }
}

fn limits(parameter: &ModelParameter) -> Limits {
    let ModelParameter {
        lower,
        upper,
        start,
        prior,
        ..
    } = parameter;
    Limits {
        lower: *lower,
        upper: *upper,
        start: *start,
        prior: *prior,
    }
}
