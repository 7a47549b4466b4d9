//! Fits of curves: minima, errors, settings, models of every kind, and the same on every device. Each module is a
//! subject of `TESTING.md`: `cargo test --release --test curves NAME::` runs one.

mod bad_curve_models;
mod borrowed_values;
mod boxes;
mod closures;
mod combinations;
mod correlated;
mod curve_control;
mod curve_settings;
mod determined;
mod estimators;
mod far_starts;
mod guesses;
mod many_at_once;
mod many_parameters;
mod minpack;
mod models;
mod multi_start;
mod nist;
mod predictions;
mod scales;
mod seams;
mod singular_starts;
mod small;
mod statistics;
mod steps_of_differences;
mod true_chi2;
