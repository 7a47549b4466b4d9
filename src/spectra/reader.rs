//! The interface of readers, which yield the spectra of a file in batches.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use super::batch::{Ids, Spectra};
use crate::error::Result;

/// A validated file that yields its spectra in order.
pub trait SpectraReader: Send {
    /// Returns the number of spectra in the file, those already yielded included.
    fn len(&self) -> u64;

    /// Returns whether there are no spectra.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the next `max` spectra (at least one), or as many as are left; `None` at the end.
    ///
    /// # Errors
    /// `Io` or `Format` if the file changed since it was opened; `TooLarge` if `max` spectra do not fit memory.
    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>>;

    /// Returns the file's arms, grids and columns without spectra.
    fn empty(&self) -> Spectra<'static>;

    /// Returns the ids of all spectra, those already yielded included, in their order; `None` from a reader that would
    /// have to read the spectra for them. They are asked for once.
    /// [`JoinedReader`](crate::low_level::JoinedReader) thereby knows the last exposure of each object.
    ///
    /// # Errors
    /// `Io` or `Format` if the file changed since it was opened.
    fn ids(&mut self) -> Result<Option<Ids>> {
        Ok(None)
    }

    /// Takes back a batch that is no longer needed, whose memory the next one may use.
    fn recycle(&mut self, _used: Spectra<'static>) {}

    /// Returns sentences for the user on what reading has changed: wavelengths converted, columns left out.
    fn notes(&self) -> &[String] {
        &[]
    }
}
