//! Results of fits: the row of each spectrum, and the table of all rows.

pub mod blank;
pub mod clusters;
pub mod columns;
pub mod exposures;
pub mod flag_counts;
pub mod joined;
pub mod moments;
pub mod quantity;
pub mod row;
pub mod row_builder;
pub mod schema;
pub mod sound;
pub mod table;
pub mod values;
