use super::*;
use crate::formula::Formula;
use crate::formula::operation::Elementary;
use crate::math::lanes::LANES;
use crate::math::triangle::{packed_index, packed_length};
use crate::solver::small::{LaneModel, LaneSum};

/// Returns irregular numbers between 0.5 and 1.5.
fn irregular_lanes<R: Elementary>(count: usize, seed: usize) -> Vec<Lanes<R>> {
    let number = |k: usize| R::of(0.5 + (k as f64 * 0.618_033_988_749_894_9).fract());
    (0..count)
        .map(|i| Lanes(std::array::from_fn(|l| number(seed + i * LANES + l))))
        .collect()
}

/// Returns parameters with amplitudes and widths of either sign. The sign of a width matters to derivatives, but not to
/// values.
fn parameters_of_either_sign<R: Elementary>(formula: &Formula) -> Vec<Lanes<R>> {
    let mut parameters = irregular_lanes::<R>(formula.parameters().len(), 7);
    for (name, lanes) in formula.parameters().iter().zip(&mut parameters) {
        let period = match name.chars().next() {
            Some('a') => 2,
            Some('s') => 3,
            _ => continue,
        };
        lanes.0.iter_mut().step_by(period).for_each(|p| *p = -*p);
    }
    parameters
}

/// Evaluates a formula for lanes and returns its rows at all points.
fn evaluate_rows<R: Elementary>(
    formula: &Formula,
    grid: LaneGrid<'_, R>,
    y: &[Lanes<R>],
    points: usize,
) -> Vec<Lanes<R>> {
    let stride = 1 + formula.parameters().len();
    let parameters = parameters_of_either_sign(formula);
    let model: LaneModel<R> = formula.lanes();
    let mut rows = vec![Lanes::splat(R::NAN); points * stride];
    let mut registers = Vec::new();
    // The points of a block come in parts, here in two.
    for part in [0..4, 4..points] {
        model(LaneBlock {
            rows: &mut rows[part.start * stride..part.end * stride],
            points: part,
            of_points: points,
            grid,
            parameters: &parameters,
            registers: &mut registers,
            y,
            stride,
        });
    }
    rows
}

/// Returns the formulas that are written out, each with a copy that runs on the tape, because its parameters were put
/// in order explicitly.
fn written_and_tape_pairs() -> Vec<[Formula; 2]> {
    let written = Formula::builtins().filter(|name| WrittenModel::find(name).is_some());
    let pairs = written.map(|name| {
        let formula = Formula::builtin(name).unwrap();
        let own_order: Vec<&str> = formula.parameters().iter().map(String::as_str).collect();
        let tape = formula.clone().with_parameters(&own_order).unwrap();
        assert!(formula.written_model.is_some() && tape.written_model.is_none());
        [formula, tape]
    });
    pairs.collect()
}

fn assert_rows_agree<R: Elementary>(
    [written, tape]: &[Formula; 2],
    rows: [Vec<Lanes<R>>; 2],
    tolerance: f64,
) {
    assert_eq!(written.parameters(), tape.parameters());
    for (i, (a, b)) in rows[0].iter().zip(&rows[1]).enumerate() {
        for l in 0..LANES {
            let a = a.0[l].to_f64();
            let b = b.0[l].to_f64();
            assert!(
                (a - b).abs() <= tolerance * (1.0 + b.abs()),
                "{} row {i} lane {l}: {a} {b}",
                written.text()
            );
        }
    }
}

/// Checks models on grids of their own or a shared one, with data or without.
fn assert_models_agree<R: Elementary>(tolerance: f64) {
    let pairs = written_and_tape_pairs();
    let points = 7;
    assert_eq!(pairs.len(), 5);
    for pair in &pairs {
        let x = irregular_lanes(pair[0].predictors().len() * points, 1001);
        let shared: Vec<R> = x.iter().map(|x| x.0[0]).collect();
        for grid in [LaneGrid::Own(&x), LaneGrid::Shared(&shared)] {
            for y in [Vec::new(), irregular_lanes(points, 2001)] {
                assert_rows_agree(
                    pair,
                    pair.each_ref().map(|f| evaluate_rows(f, grid, &y, points)),
                    tolerance,
                );
            }
        }
    }
}

#[test]
fn written_models_agree_with_their_formulas() {
    assert_models_agree::<f64>(1e-14);
    assert_models_agree::<f32>(2e-6);
}

/// Returns predictors on three columns and four lines, or with one point displaced.
fn pixel_grid<R: Elementary>(is_displaced: bool) -> Vec<R> {
    let coordinate = |k: usize| {
        if k < 12 {
            0.3 * (k % 3) as f64
        } else {
            0.4 * ((k - 12) / 3) as f64
        }
    };
    let mut x: Vec<f64> = (0..24).map(coordinate).collect();
    x[17] += if is_displaced { 0.1 } else { 0.0 };
    x.into_iter().map(R::of).collect()
}

#[test]
fn lattices_are_recognised() {
    assert_eq!(
        lattice::count_columns(&pixel_grid::<f64>(false), false),
        Some(3)
    );
    assert_eq!(
        lattice::count_columns(&pixel_grid::<f64>(true), false),
        None
    );
    // One line, one column, and a line that is not whole.
    for x in [[0, 1, 2, 5, 5, 5], [5, 5, 5, 0, 1, 2], [0, 1, 0, 5, 5, 6]] {
        assert_eq!(
            lattice::count_columns(&x.map(f64::from), false),
            None,
            "{x:?}"
        );
    }
    assert_eq!(
        lattice::count_columns(&[0.0, 1.0, 0.0, 2.0, 5.0, 5.0, 6.0, 6.0], false),
        None,
        "columns that move"
    );
    assert_eq!(
        lattice::count_columns(&[0.0, f64::NAN, 0.0, f64::NAN, 5.0, 5.0, 6.0, 6.0], false),
        None
    );
}

/// Checks rows from the factors of columns and lines against rows computed point by point.
fn assert_factors_agree<R: Elementary>(tolerance: f64) {
    let models_of_two_predictors: Vec<_> = written_and_tape_pairs()
        .into_iter()
        .filter(|[written, _]| written.predictors().len() == 2)
        .collect();
    assert_eq!(models_of_two_predictors.len(), 2);
    for pair in &models_of_two_predictors {
        for x in [pixel_grid(false), pixel_grid(true)] {
            let evaluate = |f: &Formula| evaluate_rows::<R>(f, LaneGrid::Shared(&x), &[], 12);
            assert_rows_agree(pair, pair.each_ref().map(evaluate), tolerance);
        }
    }
}

#[test]
fn rows_from_lattice_factors_agree_with_single_points() {
    assert_factors_agree::<f64>(1e-14);
    assert_factors_agree::<f32>(2e-6);
}

/// Checks sums by columns and lines against those of the rows that the tape computes point by point, to shares of the
/// lengths of the rows.
fn assert_sums_agree<R: Elementary>(tolerance: f64) {
    let x = pixel_grid::<R>(false);
    let y = irregular_lanes::<R>(12, 2001);
    for [written, tape] in written_and_tape_pairs() {
        let stride = 1 + written.parameters().len();
        let on_lattice = written.lane_sums(&x);
        assert_eq!(
            on_lattice.is_some(),
            written.predictors().len() == 2,
            "{}",
            written.text()
        );
        assert!(
            tape.lane_sums(&x).is_none() && written.lane_sums(&pixel_grid::<R>(true)).is_none()
        );
        let Some(add_up) = on_lattice else { continue };
        let parameters = parameters_of_either_sign(&written);
        let mut sums = vec![Lanes::splat(R::NAN); packed_length(stride)];
        add_up(LaneSum {
            parameters: &parameters,
            registers: &mut Vec::new(),
            y: &y,
            sums: &mut sums,
        });
        let rows = evaluate_rows::<R>(&tape, LaneGrid::Shared(&x), &y, 12);
        for l in 0..LANES {
            let product = |i: usize, j: usize| {
                rows.chunks_exact(stride)
                    .map(|row| row[i].0[l].to_f64() * row[j].0[l].to_f64())
                    .sum::<f64>()
            };
            for (i, j) in (0..stride).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let sum = sums[packed_index(i, j)].0[l].to_f64();
                let expected = product(i, j);
                let length = (product(i, i) * product(j, j)).sqrt();
                let text = written.text();
                assert!(
                    (sum - expected).abs() <= tolerance * length,
                    "{text}, {i} {j}, lane {l}: {sum} {expected} of {length}"
                );
            }
        }
    }
}

#[test]
fn sums_on_lattices_agree_with_single_points() {
    assert_sums_agree::<f64>(1e-14);
    assert_sums_agree::<f32>(4e-6);
}
