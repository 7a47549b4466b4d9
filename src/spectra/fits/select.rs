//! Which spectra of a file are read.

/// Which rows and arms of a survey's file are read; empty fields select everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// TARGETIDs.
    pub target_ids: Option<Vec<i64>>,
    /// OBJTYPE of the fibre map: `TGT`, `SKY`, ….
    pub objtype: Option<String>,
    /// Least signal-to-noise ratio: the median of flux √ivar of the best arm.
    pub min_signal_to_noise: Option<f64>,
    /// Names of arms.
    pub arms: Option<Vec<String>>,
}

impl Selection {
    /// Whether everything is read.
    pub fn is_all(&self) -> bool {
        *self == Selection::default()
    }
}
