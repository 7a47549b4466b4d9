use super::*;
use crate::formula::Formula;
use crate::formula::operation::Elementary;
use crate::math::lanes::LANES;
use crate::math::triangle::{packed_index, packed_length};
use crate::solver::small::{LaneModel, LaneSum};

/// Irregular numbers between 0.5 and 1.5.
fn some<R: Elementary>(count: usize, seed: usize) -> Vec<Lanes<R>> {
    let number = |k: usize| R::of(0.5 + (k as f64 * 0.618_033_988_749_894_9).fract());
    (0..count)
        .map(|i| Lanes(std::array::from_fn(|l| number(seed + i * LANES + l))))
        .collect()
}

/// Parameters of which amplitudes and widths are of either sign. A width's does not matter to values, but to
/// derivatives.
fn parameters<R: Elementary>(formula: &Formula) -> Vec<Lanes<R>> {
    let mut all = some::<R>(formula.parameters().len(), 7);
    for (name, own) in formula.parameters().iter().zip(&mut all) {
        let every = match name.chars().next() {
            Some('a') => 2,
            Some('s') => 3,
            _ => continue,
        };
        own.0.iter_mut().step_by(every).for_each(|p| *p = -*p);
    }
    all
}

/// All rows of lanes of some parameters.
fn rows<R: Elementary>(
    formula: &Formula,
    grid: LaneGrid<'_, R>,
    y: &[Lanes<R>],
    points: usize,
) -> Vec<Lanes<R>> {
    let stride = 1 + formula.parameters().len();
    let parameters = parameters(formula);
    let model: LaneModel<R> = formula.lanes();
    let (mut out, mut registers) = (vec![Lanes::splat(R::NAN); points * stride], Vec::new());
    // in two calls, as a block's points go by in parts
    for part in [0..4, 4..points] {
        model(LaneBlock {
            rows: &mut out[part.start * stride..part.end * stride],
            points: part,
            of_points: points,
            grid,
            parameters: &parameters,
            registers: &mut registers,
            y,
            stride,
        });
    }
    out
}

/// Formulas that are written out, each with a copy that is not, as its parameters were put in order by hand.
fn pairs() -> Vec<[Formula; 2]> {
    let written = Formula::builtins().filter(|name| Direct::of(name).is_some());
    let pairs = written.map(|name| {
        let formula = Formula::builtin(name).unwrap();
        let own_order: Vec<&str> = formula.parameters().iter().map(String::as_str).collect();
        let tape = formula.clone().with_parameters(&own_order).unwrap();
        assert!(formula.direct.is_some() && tape.direct.is_none());
        [formula, tape]
    });
    pairs.collect()
}

fn assert_alike<R: Elementary>(
    [written, tape]: &[Formula; 2],
    all: [Vec<Lanes<R>>; 2],
    tolerance: f64,
) {
    assert_eq!(written.parameters(), tape.parameters());
    for (i, (a, b)) in all[0].iter().zip(&all[1]).enumerate() {
        for l in 0..LANES {
            let (a, b) = (a.0[l].to_f64(), b.0[l].to_f64());
            assert!(
                (a - b).abs() <= tolerance * (1.0 + b.abs()),
                "{} row {i} lane {l}: {a} {b}",
                written.text()
            );
        }
    }
}

/// On grids of their own or a shared one, with data or without.
fn models_agree<R: Elementary>(tolerance: f64) {
    let (pairs, points) = (pairs(), 7);
    assert_eq!(pairs.len(), 5);
    for pair in &pairs {
        let x = some(pair[0].predictors().len() * points, 1001);
        let shared: Vec<R> = x.iter().map(|x| x.0[0]).collect();
        for grid in [LaneGrid::Own(&x), LaneGrid::Shared(&shared)] {
            for y in [Vec::new(), some(points, 2001)] {
                assert_alike(
                    pair,
                    pair.each_ref().map(|f| rows(f, grid, &y, points)),
                    tolerance,
                );
            }
        }
    }
}

#[test]
fn written_models_are_their_formulas() {
    models_agree::<f64>(1e-14);
    models_agree::<f32>(2e-6);
}

/// Predictors on three columns and four lines, or with one point elsewhere.
fn pixels<R: Elementary>(elsewhere: bool) -> Vec<R> {
    let at = |k: usize| {
        if k < 12 {
            0.3 * (k % 3) as f64
        } else {
            0.4 * ((k - 12) / 3) as f64
        }
    };
    let mut x: Vec<f64> = (0..24).map(at).collect();
    x[17] += if elsewhere { 0.1 } else { 0.0 };
    x.into_iter().map(R::of).collect()
}

#[test]
fn lattices_are_seen() {
    assert_eq!(lattice::columns(&pixels::<f64>(false), false), Some(3));
    assert_eq!(lattice::columns(&pixels::<f64>(true), false), None);
    // one line, one column, a line that is not whole
    for x in [[0, 1, 2, 5, 5, 5], [5, 5, 5, 0, 1, 2], [0, 1, 0, 5, 5, 6]] {
        assert_eq!(lattice::columns(&x.map(f64::from), false), None, "{x:?}");
    }
    assert_eq!(
        lattice::columns(&[0.0, 1.0, 0.0, 2.0, 5.0, 5.0, 6.0, 6.0], false),
        None,
        "columns that move"
    );
    assert_eq!(
        lattice::columns(&[0.0, f64::NAN, 0.0, f64::NAN, 5.0, 5.0, 6.0, 6.0], false),
        None
    );
}

/// Factors of columns and lines make the rows that points make.
fn factors_agree<R: Elementary>(tolerance: f64) {
    let plane: Vec<_> = pairs()
        .into_iter()
        .filter(|[written, _]| written.predictors().len() == 2)
        .collect();
    assert_eq!(plane.len(), 2);
    for pair in &plane {
        for x in [pixels(false), pixels(true)] {
            let of = |f: &Formula| rows::<R>(f, LaneGrid::Shared(&x), &[], 12);
            assert_alike(pair, pair.each_ref().map(of), tolerance);
        }
    }
}

#[test]
fn factors_of_lattices_make_what_points_make() {
    factors_agree::<f64>(1e-14);
    factors_agree::<f32>(2e-6);
}

/// Sums by columns and lines are those of the rows that the formula's copy makes point by point, to shares of the rows'
/// own lengths.
fn sums_agree<R: Elementary>(tolerance: f64) {
    let (x, y) = (pixels::<R>(false), some::<R>(12, 2001));
    for [written, tape] in pairs() {
        let stride = 1 + written.parameters().len();
        let on_lattice = written.lane_sums(&x);
        assert_eq!(
            on_lattice.is_some(),
            written.predictors().len() == 2,
            "{}",
            written.text()
        );
        assert!(tape.lane_sums(&x).is_none() && written.lane_sums(&pixels::<R>(true)).is_none());
        let Some(add_up) = on_lattice else { continue };
        let parameters = parameters(&written);
        let mut sums = vec![Lanes::splat(R::NAN); packed_length(stride)];
        add_up(LaneSum {
            parameters: &parameters,
            registers: &mut Vec::new(),
            y: &y,
            sums: &mut sums,
        });
        let rows = rows::<R>(&tape, LaneGrid::Shared(&x), &y, 12);
        for l in 0..LANES {
            let product = |i: usize, j: usize| {
                rows.chunks_exact(stride)
                    .map(|row| row[i].0[l].to_f64() * row[j].0[l].to_f64())
                    .sum::<f64>()
            };
            for (i, j) in (0..stride).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let (sum, right) = (sums[packed_index(i, j)].0[l].to_f64(), product(i, j));
                let length = (product(i, i) * product(j, j)).sqrt();
                let text = written.text();
                assert!(
                    (sum - right).abs() <= tolerance * length,
                    "{text}, {i} {j}, lane {l}: {sum} {right} of {length}"
                );
            }
        }
    }
}

#[test]
fn sums_of_lattices_are_those_of_points() {
    sums_agree::<f64>(1e-14);
    sums_agree::<f32>(4e-6);
}
