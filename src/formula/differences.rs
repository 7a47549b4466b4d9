//! Derivatives by centred differences, as a model without symbolic ones would have them.

use super::tape::Tape;

/// ∛ε: where truncation and rounding of a centred difference are about equal.
const STEP: f64 = 6.055_454_452_393_343e-6;

/// The values of `tape` and their derivatives, (1 + parameters, points), each parameter moved by ±[`STEP`] of its magnitude (of 1
/// where it is 0).
pub fn linearise(tape: &Tape, points: usize, x: &[f64], parameters: &[f64], output: &mut [f64]) {
    if points == 0 {
        return;
    }
    tape.evaluate(points, x, parameters, &mut output[..points]);
    let (mut moved, mut below) = (parameters.to_vec(), vec![0.0; points]);
    for (p, row) in output[points..].chunks_exact_mut(points).enumerate() {
        let step = STEP * if parameters[p] == 0.0 { 1.0 } else { parameters[p].abs() };
        let (low, high) = (parameters[p] - step, parameters[p] + step);
        moved[p] = low;
        tape.evaluate(points, x, &moved, &mut below);
        moved[p] = high;
        tape.evaluate(points, x, &moved, row);
        moved[p] = parameters[p];
        row.iter_mut().zip(&below).for_each(|(above, below)| *above = (*above - below) / (high - low));
    }
}
