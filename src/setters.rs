//! Setters of settings, by which settings can be added without breaking programs.

/// Writes a documented setter for each field, under the field's name. `Some` and `into` convert its argument.
macro_rules! setters {
    ($type:ident { $($(#[$doc:meta])+ $name:ident: $argument:ty $(, $conversion:ident)?;)+ }) => {
        impl $type {
            $(
                $(#[$doc])+
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
