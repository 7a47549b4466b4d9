//! Selection of the spectra of a file that are read.

use std::path::Path;

use crate::error::{Error, Result};
use crate::spectra::Widening;

/// Selection of the rows and arms that are read from a survey's file, and how their masks are read; empty fields
/// select everything. Fields may be added: end a literal with `..Selection::default()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// TARGETIDs of the selected spectra.
    pub target_ids: Option<Vec<i64>>,
    /// OBJTYPE in the fibre map: `TGT`, `SKY`, ….
    pub objtype: Option<String>,
    /// True to leave out fibres of DESI files whose FIBERSTATUS, or COADD_FIBERSTATUS, has a bit other than 3 (a
    /// positioner with a restricted range) and 20 (many bad columns), as rvspecfit does. Other files have no such
    /// fibres.
    pub good_fibres: bool,
    /// Minimum signal-to-noise ratio, the median of flux √ivar of the best arm.
    pub min_signal_to_noise: Option<f64>,
    /// Names of the selected arms.
    pub arms: Option<Vec<String>>,
    /// Bits of masks that widen errors: the model's [`SpectraSettings::widen`](crate::SpectraSettings::widen). Without
    /// it every bit that has a meaning masks its pixel. The signal-to-noise ratio is that of the file's errors.
    pub widen: Option<Widening>,
    /// True to join the spectra of a file that have the same id to one object, whose exposures they are
    /// ([`JoinedReader`](crate::low_level::JoinedReader)).
    pub join_exposures: bool,
}

impl Selection {
    /// Returns whether the selection may exclude spectra: by target, object type or signal-to-noise ratio. A selection
    /// of arms does not exclude spectra.
    #[doc(hidden)]
    pub fn selects_rows(&self) -> bool {
        self.target_ids.is_some() || self.objtype.is_some() || self.min_signal_to_noise.is_some()
    }

    /// Returns an error if rows are selected: the file has no fibre map to select by.
    pub(in crate::spectra) fn refuse_rows(&self, path: &Path) -> Result<()> {
        match self.selects_rows() {
            false => Ok(()),
            true => Err(Error::Usage(format!(
                "{}: spectra can be selected from DESI files only",
                path.display()
            ))),
        }
    }
}
