//! Setters of settings with public fields, by which settings can be added without breaking programs.

/// Writes a setter for each field, under the field's name. `Some` and `into` convert its argument.
macro_rules! setters {
    ($type:ident { $($name:ident: $argument:ty $(, $conversion:ident)?;)+ }) => {
        impl $type {
            $(
                #[doc = concat!("Replaces [`", stringify!($name), "`](#structfield.", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $argument) -> $type {
                    self.$name = setters!(@ $name $($conversion)?);
                    self
                }
            )+
        }
    };
    (@ $value:ident) => { $value };
    (@ $value:ident Some) => { Some($value) };
    (@ $value:ident into) => { Some($value.into()) };
    (@ $value:ident convert) => { $value.into() };
}

pub(crate) use setters;
