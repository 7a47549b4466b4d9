//! What a fit reads: data, settings, and the starts and units of its parameters.

pub mod begin;
pub mod correlated;
pub mod data;
pub mod dominance;
pub mod no_counts;
pub mod rows;
pub mod settings;
pub mod shape;
pub mod sizes;
pub mod units;
pub mod validity;
