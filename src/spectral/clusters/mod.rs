//! Joint fits of clusters, whose spectra share labels (`docs/src/equations.md`, section 18).
//!
//! Each spectrum is first fitted alone. A cluster's fit begins at the mean of the shared labels, weighted by their
//! information, or at their median if the cost is lower there, and takes damped Gauss–Newton steps of all members
//! together (`descent.rs`). The equations of a step are solved member by member (`arrow.rs`).

mod arrow;
mod descent;

pub use arrow::SharedPrior;
pub use descent::{Cluster, ClusterMember, ClusterSettings, SingleFit};
