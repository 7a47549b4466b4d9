//! Writer of FITS files: cards, images and binary tables with their checksums.

#![allow(clippy::indexing_slicing, reason = "what is written is popfit's own")]

pub mod cards;
pub mod image;
pub mod table;
