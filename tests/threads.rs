//! Threads of a run: `Control::threads` gives it a kept pool, which does all of its work, and changes no bit.
//!
//! A process of its own, with one test: nothing here may start rayon's global pool, whose threads would be seen.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use popfit::low_level::Journal;
use popfit::{
    Closure, Continuum, Control, CurveColumns, CurveFit, CurveFitter, Curves, Device, Emulator,
    FitTable, Formula, LevenbergMarquardt, NelderMead, Solver, Spectra, SpectralFitter,
    SpectralModel,
};

/// Returns how many threads of this process have each name.
fn threads_by_name() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(Result::ok)
    {
        if let Ok(name) = std::fs::read_to_string(task.path().join("comm")) {
            *found.entry(name.trim().to_string()).or_default() += 1;
        }
    }
    found
}

/// Returns a fitter of the demo's spectra, on a device that is older than any pool.
fn fitter(solver: impl Into<Solver>) -> SpectralFitter {
    let emulator = Emulator::open(popfit_testing::demo_file("emulator.safetensors")).unwrap();
    let model = SpectralModel::builder()
        .arm("b", emulator)
        .velocity(-500.0..=500.0);
    let model = model.continuum(Continuum::rbf(8)).build().unwrap();
    SpectralFitter::new(model, Device::cpu())
        .solver(solver)
        .batch_size(4)
}

fn of_table(table: FitTable) -> Vec<f64> {
    let numbers = |row: popfit::FitRow| {
        [row.parameters, row.errors, row.correlations, vec![row.chi2]].concat()
    };
    table.to_rows().into_iter().flat_map(numbers).collect()
}

fn of_fits(fits: Vec<CurveFit>) -> Vec<f64> {
    fits.into_iter()
        .flat_map(|fit| [fit.parameters, fit.errors, vec![fit.chi2]].concat())
        .collect()
}

fn of_columns(columns: CurveColumns) -> Vec<f64> {
    ["a", "k"]
        .iter()
        .flat_map(|name| columns.column(name).unwrap().collect::<Vec<_>>())
        .collect()
}

/// Curves of a decay: (curves, points).
fn curves(count: u32) -> Curves<'static> {
    let x: Vec<f64> = (0..24).map(|j| 0.2 * f64::from(j)).collect();
    let curve = |k: u32| {
        let rate = 0.4 + 0.01 * f64::from(k % 60);
        x.iter()
            .map(move |x| 3.0 * (-rate * x).exp() + 0.01 * (7.0 * x).sin())
            .collect::<Vec<f64>>()
    };
    let y: Vec<f64> = (0..count).flat_map(curve).collect();
    Curves::on_common_grid(x.clone(), y, [1.0, 0.7].repeat(count as usize))
}

/// Returns a decay as a closure that takes its time, and the names of the threads that have called it.
fn closure() -> (Closure, Arc<Mutex<BTreeSet<String>>>) {
    let callers = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = callers.clone();
    let decay = Closure::new(&["x"], &["a", "k"], move |x, p, y| {
        seen.lock().unwrap().insert(
            std::thread::current()
                .name()
                .unwrap_or("unnamed")
                .to_string(),
        );
        std::thread::sleep(Duration::from_micros(20));
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    });
    (decay.unwrap(), callers)
}

/// A way to fit: numbers of its results.
type Route<'a> = &'a dyn Fn(&Control) -> Vec<f64>;

/// Every route of spectra and curves computes on the threads that were asked for and on no others, and to the same
/// bits.
#[test]
fn a_run_computes_on_the_threads_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let few = Spectra::open(popfit_testing::demo_file("spectra.npz"))
        .unwrap()
        .slice(0..6);
    let lm = fitter(LevenbergMarquardt::default());
    let nelder_mead = fitter(NelderMead::default().max_rounds(40));
    let formula = Formula::parse("a*exp(-k*x)").unwrap();
    let curve_fitter = CurveFitter::new(formula, Device::cpu());
    let simplex = curve_fitter.clone().solver(NelderMead::default());
    let (decay, callers) = closure();
    let by_closure = CurveFitter::new(decay, Device::cpu());
    let (many, hundred) = (curves(3000), curves(100));
    let starts = of_table_parameters(
        &lm.clone()
            .control(Control {
                threads: Some(2),
                ..Control::default()
            })
            .fit(&few)
            .unwrap(),
    );
    let journaled = |control: &Control| {
        let mut table = lm.table();
        let mut journal = Journal::open(&folder.path().join("out"), "key", false).unwrap();
        lm.clone()
            .control(control.clone())
            .fit_journaled(&mut few.reader(), &mut table, &mut journal)
            .unwrap();
        journal.remove().unwrap();
        of_table(table)
    };
    let streamed = |control: &Control| {
        let mut table = lm.table();
        lm.clone()
            .control(control.clone())
            .fit_stream(&mut few.reader(), &mut table)
            .unwrap();
        of_table(table)
    };
    let routes: [(&str, Route); 10] = [
        ("fit", &|control| {
            of_table(lm.clone().control(control.clone()).fit(&few).unwrap())
        }),
        ("fit_stream", &streamed),
        ("fit_journaled", &journaled),
        ("fit_from", &|control| {
            of_table(
                lm.clone()
                    .control(control.clone())
                    .fit_from(&few, &starts)
                    .unwrap(),
            )
        }),
        ("nelder_mead", &|control| {
            of_table(
                nelder_mead
                    .clone()
                    .control(control.clone())
                    .fit(&few)
                    .unwrap(),
            )
        }),
        ("scope", &|control| {
            control.scope(|| of_table(lm.fit(&few).unwrap())).unwrap()
        }),
        ("curves", &|control| {
            of_fits(
                curve_fitter
                    .clone()
                    .control(control.clone())
                    .fit(&many)
                    .unwrap(),
            )
        }),
        ("columns", &|control| {
            of_columns(
                curve_fitter
                    .clone()
                    .control(control.clone())
                    .fit_columns(&many)
                    .unwrap(),
            )
        }),
        ("simplex", &|control| {
            of_fits(
                simplex
                    .clone()
                    .control(control.clone())
                    .fit(&hundred)
                    .unwrap(),
            )
        }),
        ("closure", &|control| {
            of_fits(
                by_closure
                    .clone()
                    .control(control.clone())
                    .fit(&hundred)
                    .unwrap(),
            )
        }),
    ];
    for (name, route) in routes {
        let (one, two) = (
            route(&Control {
                threads: Some(1),
                ..Control::default()
            }),
            route(&Control {
                threads: Some(2),
                ..Control::default()
            }),
        );
        assert!(!one.is_empty() && one.len() == two.len(), "{name}");
        assert!(
            one.iter()
                .zip(&two)
                .all(|(a, b)| a.to_bits() == b.to_bits()),
            "{name}"
        );
    }
    // 1. The closure was called by all threads of the pools, and by no other.
    let pools = ["popfit 0/1", "popfit 0/2", "popfit 1/2"];
    assert_eq!(
        callers
            .lock()
            .unwrap()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        pools
    );
    // 2. The pools are kept, and nothing has started another one. What else there is, is the test's.
    let threads = threads_by_name();
    for name in pools {
        assert_eq!(threads.get(name), Some(&1), "{threads:?}");
    }
    assert_eq!(
        threads.values().sum::<usize>(),
        pools.len() + 2,
        "{threads:?}"
    );
    // 3. A model may call popfit, on the thread on which it is called.
    let inner = lm.clone();
    let spectrum = few.slice(0..1);
    let nested = Closure::new(&["x"], &["a"], move |_, p, y| {
        let table = inner
            .clone()
            .control(Control {
                threads: Some(1),
                ..Control::default()
            })
            .fit(&spectrum)
            .unwrap();
        y.fill(p[0] + f64::from(u8::from(table.len() == 2)));
    });
    let nested = CurveFitter::new(nested.unwrap(), Device::cpu()).polish(false);
    let one = Curves::on_common_grid(vec![0.0, 1.0], vec![1.0, 1.0], vec![0.5]);
    assert!(
        nested
            .clone()
            .control(Control {
                threads: Some(1),
                ..Control::default()
            })
            .fit(&one)
            .unwrap()[0]
            .status
            .is_success()
    );
    refuse_no_threads();
    stop_early();
}

/// Returns the parameters of all rows, as starts.
fn of_table_parameters(table: &FitTable) -> Vec<f64> {
    table
        .to_rows()
        .into_iter()
        .flat_map(|row| row.parameters)
        .collect()
}

/// 0 threads are refused.
fn refuse_no_threads() {
    let error = Control {
        threads: Some(0),
        ..Control::default()
    }
    .scope(|| ())
    .unwrap_err();
    assert!(
        matches!(&error, popfit::Error::InvalidSettings { faults } if faults[0].name == "threads"),
        "{error}"
    );
}

/// A run from starts of its own ends with its time, and so does a search for confidence intervals.
fn stop_early() {
    let lm = fitter(LevenbergMarquardt::default());
    let few = Spectra::open(popfit_testing::demo_file("spectra.npz"))
        .unwrap()
        .slice(0..2);
    let starts = vec![0.0; few.len() * lm.parameters().len()];
    let control = Control {
        threads: Some(1),
        timeout: Some(Duration::ZERO),
        ..Control::default()
    };
    let table = lm
        .clone()
        .control(control.clone())
        .fit_from(&few, &starts)
        .unwrap();
    assert!(
        table.status().iter().all(|status| !status.is_success()),
        "{:?}",
        table.status()
    );
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let curves = curves(3);
    let fits = fitter
        .clone()
        .control(Control {
            threads: Some(1),
            ..Control::default()
        })
        .fit(&curves)
        .unwrap();
    let intervals = |control: &Control| {
        fitter
            .clone()
            .control(control.clone())
            .confidence_intervals(&curves, &fits, &["k"], &[1.0])
    };
    assert!(
        intervals(&control)
            .unwrap()
            .iter()
            .flatten()
            .all(|interval| interval.lower.is_nan())
    );
    let ends = Arc::new(Mutex::new(Vec::new()));
    let counts = ends.clone();
    let control = Control {
        threads: Some(1),
        progress: Some(Arc::new(move |done, total| {
            counts.lock().unwrap().push([done, total])
        })),
        ..Control::default()
    };
    let found = intervals(&control).unwrap();
    assert!(
        found
            .iter()
            .flatten()
            .all(|interval| interval.lower < interval.upper)
    );
    assert_eq!(ends.lock().unwrap().last(), Some(&[6, 6]));
}
