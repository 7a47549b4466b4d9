//! `popfit check`: what a model file says, and whether its derivatives are right.

use std::path::PathBuf;

use popfit::{Device, Emulator, SpectralFitter, SpectralModel};

use super::rows::{cells, print, short};
use super::stdout::line;
use super::{Failure, dry_run, open_model};

/// Most that a column of the Jacobian may differ from central differences at any pixel, relative to the largest of
/// them.
const TOLERANCE: f64 = 1e-5;
/// Digits of bounds and training ranges.
const DIGITS: i32 = 6;

#[derive(clap::Args)]
pub struct Arguments {
    /// The model file
    #[arg(value_name = "MODEL.toml")]
    model: PathBuf,
    #[command(flatten)]
    dry_run: dry_run::Arguments,
}

/// Runs `popfit check`: prints a model's arms, labels and parameters; fails if its derivatives differ from numerical
/// ones. With spectra, tries the model on them.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut file = open_model(&arguments.model)?;
    if let Some(arms) = arguments.dry_run.arms() {
        file.keep_arms(arms)?;
    }
    let model = file.build()?;
    let opened = arguments.dry_run.open(&model)?;
    print_arms(&model);
    print_labels(&model);
    print_training_sets(&model);
    let (warnings, idle) = (model.warnings(), model.idle_labels());
    let bounds = model.bounds();
    let fitter = SpectralFitter::new(model, Device::cpu());
    let mut rows = vec![cells([
        "parameter",
        "lower",
        "upper",
        "Jacobian off by",
        "",
    ])];
    let mut failed = Vec::new();
    for (check, (lower, upper)) in fitter.check_jacobian()?.into_iter().zip(bounds) {
        let pass = check.error < TOLERANCE;
        // relative to no derivative at all, any difference is large
        let is_idle = idle.contains(&check.parameter);
        let verdict = match (is_idle, pass) {
            (true, _) => "no effect",
            (false, true) => "pass",
            (false, false) => "FAIL",
        };
        let difference = format!("{:.1e}", check.error);
        rows.push(vec![
            check.parameter.clone(),
            short(lower, DIGITS),
            short(upper, DIGITS),
            difference,
            verdict.into(),
        ]);
        if !pass && !is_idle {
            failed.push(check.parameter);
        }
    }
    print(&rows);
    print_warnings(&warnings, &idle);
    if !failed.is_empty() {
        let failed = failed.join(", ");
        return Err(Failure::usage(format!(
            "the Jacobian is more than {TOLERANCE:e} off in {failed}"
        )));
    }
    opened.map_or(Ok(()), |opened| dry_run::run(opened, &file))
}

/// Prints the model's warnings, then one for each label in `idle`, which has no effect on the template.
fn print_warnings(warnings: &[String], idle: &[String]) {
    let idle = idle.iter().map(|name| {
        format!(
            "label {name} has no effect on the template anywhere in its training range: its errors will be infinite. \
             Hold it, `[labels.{name}] fixed = …`"
        )
    });
    for warning in warnings.iter().cloned().chain(idle) {
        line(format_args!("\nwarning: {warning}"));
    }
}

/// Prints a table of the arms: pixels, wavelength range (Å), activation, emulator and its hash.
fn print_arms(model: &SpectralModel) {
    let mut rows = vec![cells([
        "arm",
        "pixels",
        "from Å",
        "to Å",
        "activation",
        "emulator",
        "SHA-256",
    ])];
    for ((name, emulator), (_, source, hash)) in model.arms().zip(model.emulators()) {
        let wavelength = emulator.wavelength();
        let end = |value: Option<&f64>| value.map_or("-".into(), |w| format!("{w:.2}"));
        let short = hash.get(..12).unwrap_or(&hash).to_string();
        let pixels = emulator.pixels().to_string();
        let assumed = if emulator.assumes_activation() {
            " (assumed)"
        } else {
            ""
        };
        let activation = format!("{}{assumed}", emulator.activation());
        let ends = [end(wavelength.first()), end(wavelength.last())];
        rows.push(
            [
                &[name.to_string(), pixels][..],
                &ends,
                &[activation, source, short],
            ]
            .concat(),
        );
    }
    print(&rows);
    line("");
}

/// Prints a table of the labels with their units and training ranges.
fn print_labels(model: &SpectralModel) {
    let mut rows = vec![cells(["label", "arm", "unit", "trained from", "to"])];
    for (name, emulator) in model.arms() {
        for label in emulator.labels() {
            let (min, max) = (short(label.min, DIGITS), short(label.max, DIGITS));
            rows.push(vec![
                label.name.clone(),
                name.to_string(),
                label.unit.clone(),
                min,
                max,
            ]);
        }
    }
    print(&rows);
    line("");
}

/// Prints for each arm what happens to fits outside the training set of its emulator.
fn print_training_sets(model: &SpectralModel) {
    for (name, emulator) in model.arms() {
        let arm = if name.is_empty() {
            String::new()
        } else {
            format!("arm {name}: ")
        };
        training_set(emulator)
            .iter()
            .for_each(|words| line(format!("{arm}{words}")));
    }
    line("");
}

/// Returns text lines: which labels a hull of the training set bounds, which none does, and what follows outside.
fn training_set(emulator: &Emulator) -> Vec<String> {
    let names = |axes: &[usize]| {
        axes.iter()
            .map(|k| emulator.labels()[*k].name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let flagged = "flag 8 marks fits that end there";
    let hulls: Vec<String> = emulator
        .hulls()
        .iter()
        .map(|hull| format!("({})", names(&hull.axes)))
        .collect();
    let uncovered: Vec<usize> = emulator.uncovered_labels().collect();
    let mut out = Vec::new();
    if !hulls.is_empty() {
        out.push(format!(
            "outside the training hull of {} a penalty is added, and {flagged}",
            hulls.join(" and ")
        ));
    }
    if !uncovered.is_empty() {
        let names = names(&uncovered);
        out.push(format!(
            "no training hull covers {names}: there is no penalty outside their training ranges, but {flagged}"
        ));
    }
    out
}
