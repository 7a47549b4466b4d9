//! What a fit reads: spectra matched with the model, prepared, laid out, with their limits and starts.

pub mod assemble;
pub mod clusters;
pub mod covariance;
pub mod exposures;
pub mod given;
pub mod guess;
pub mod layout;
pub mod limits;
pub mod negative_flux;
pub mod reading;
pub mod ready;
pub mod rest;
