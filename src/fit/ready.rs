//! Spectra that can be fitted.

use std::sync::Arc;

use crate::model::{Fault, Limits, Prepared, Sampling, Start};

/// The starts of a spectrum, in `u`.
pub type Starts = Vec<Vec<f64>>;

/// A spectrum that can be fitted: its place in the batch of spectra and where it starts.
#[derive(Clone)]
pub struct Ready {
    pub place: usize,
    pub prepared: Prepared,
    /// One a parameter.
    pub limits: Vec<Limits>,
    pub starts: Vec<Start>,
    /// Its minimum may be looked at again, and one more start be added.
    pub may_look: bool,
}

/// The samplings of an arm for the spectra of a batch: one grid for all, or one each.
pub enum Grids {
    Shared(Arc<Sampling>),
    Own(Vec<std::result::Result<Arc<Sampling>, Fault>>),
}

impl Grids {
    pub fn of(&self, spectrum: usize) -> std::result::Result<&Arc<Sampling>, &Fault> {
        match self {
            Grids::Shared(sampling) => Ok(sampling),
            Grids::Own(all) => all[spectrum].as_ref(),
        }
    }
}

impl Ready {
    pub fn starts(&self) -> Starts {
        self.starts.iter().map(|start| start.u.clone()).collect()
    }
}
