//! Setters of settings whose fields are public, so that more settings can come without breaking a program.

/// Writes a setter for each field, under the field's name; `Some` and `into` say what becomes of its argument.
macro_rules! setters {
    ($type:ident { $($name:ident: $argument:ty $(, $how:ident)?;)+ }) => {
        impl $type {
            $(
                #[doc = concat!("Replaces [`", stringify!($name), "`](#structfield.", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $argument) -> $type {
                    self.$name = setters!(@ $name $($how)?);
                    self
                }
            )+
        }
    };
    (@ $value:ident) => { $value };
    (@ $value:ident Some) => { Some($value) };
    (@ $value:ident into) => { Some($value.into()) };
}

pub(crate) use setters;
