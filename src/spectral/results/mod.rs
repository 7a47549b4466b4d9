//! Results of fits: the row of each spectrum, and the table of all rows.

pub mod blank;
pub mod clusters;
pub mod columns;
pub mod exposures;
pub mod finish;
pub mod flag_counts;
pub mod joined;
pub mod moments;
pub mod quantity;
pub mod row;
pub mod schema;
pub mod sound;
pub mod table;
pub mod values;
