//! The macro that generates the row and its storage from the list of columns.

use crate::spectral::results::schema::Schema;
use crate::spectral::results::values::ColumnKind;

/// A field of a row, with its columns.
#[derive(Debug)]
pub struct DeclaredField {
    /// Names and meanings of the columns; empty for a field without a column.
    pub patterns: &'static [Pattern],
    /// Type of the columns' cells. Ids may be text, too.
    pub kind: ColumnKind,
    pub presence: Presence,
}

/// The tables that have a column.
#[derive(Clone, Copy, Debug)]
pub enum Presence {
    /// Every table.
    Always,
    /// Every table that this version writes. Earlier versions may have written tables without it.
    Later,
    /// Tables whose schema has this flag set, because the user asked for the column.
    Optional(fn(&mut Schema) -> &mut bool),
}

/// Text of one column, in which NAME, ARM and A_B stand for parameters, arms and pairs of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    pub name: &'static str,
    /// Empty without a unit; `its own` for the unit of the parameter.
    pub unit: &'static str,
    /// ASCII, short enough for one card of a FITS header.
    pub meaning: &'static str,
}

/// Generates these items from the list of fields in `columns/mod.rs`: `FitRow`, `Store` and `ROW_FIELDS`.
macro_rules! declare {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $(#[$attribute:meta])? $type:ident $(<$inner:ident>)?
        $(, $presence:ident $(($flag:ident))?)?
        $(= $([$name:literal, $unit:literal, $meaning:literal])+)?;
    )+) => {
        /// The fit of one spectrum. P is the number of free parameters of the model.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct FitRow {
            $($(#[doc = $doc])+ $(#[$attribute])? pub $field: $type $(<$inner>)?,)+
        }

        impl FitRow {
            /// Returns a row in which every number is missing, and every list is empty.
            pub(super) fn empty() -> FitRow {
                FitRow { $($field: RowField::from_cells(std::iter::empty()),)+ }
            }
        }

        /// The fields of all rows of a table, each in columns.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Store {
            $(pub $field: FieldColumns<<$type $(<$inner>)? as RowField>::Cell>,)+
        }

        impl Store {
            /// Appends a row.
            pub fn push(&mut self, row: &FitRow) {
                let rows = self.len();
                $(self.$field.push(row.$field.cells(), rows);)+
            }

            /// Returns a copy of a row.
            pub fn row(&self, index: usize) -> FitRow {
                FitRow { $($field: RowField::from_cells(self.$field.row(index)),)+ }
            }

            /// Returns the fields in the order of [`ROW_FIELDS`].
            pub fn fields(&self) -> [&dyn StoredField; ROW_FIELDS.len()] {
                [$(&self.$field),+]
            }

            /// Returns the fields in the order of [`ROW_FIELDS`].
            pub fn fields_mut(&mut self) -> [&mut dyn StoredField; ROW_FIELDS.len()] {
                [$(&mut self.$field),+]
            }
        }

        /// The fields of a row, with their columns, in the order of the file.
        pub const ROW_FIELDS: &[DeclaredField] = &[$(DeclaredField {
            patterns: &[$($(Pattern { name: $name, unit: $unit, meaning: $meaning }),+)?],
            kind: <<$type $(<$inner>)? as RowField>::Cell as Cell>::KIND,
            presence: presence!($field $($presence $(($flag))?)?),
        }),+];
    };
}

/// Converts the word after the type of a field to its [`Presence`].
macro_rules! presence {
    ($field:ident) => {
        Presence::Always
    };
    ($field:ident later) => {
        Presence::Later
    };
    ($field:ident optional) => {
        presence!($field optional($field))
    };
    ($field:ident optional($flag:ident)) => {
        Presence::Optional(|schema: &mut Schema| &mut schema.$flag)
    };
}

pub(super) use {declare, presence};
