//! What a fit gives: a result of its own or columns of all, intervals and a report.

pub mod columns;
pub mod interval;
pub mod predict;
pub mod report;
pub mod result;
pub mod search;
pub mod sound;
pub mod statistics;
