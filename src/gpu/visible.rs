//! The adapters that popfit may use, and the one that a text names.

use std::fmt;

use crate::error::{Error, Result};

/// Environment variable with the adapters that a process sees, as in `0,0000:81:00.0`; all of them where it is not set.
const VISIBLE_DEVICES_VARIABLE: &str = "POPFIT_VISIBLE_DEVICES";

/// Name and place of an adapter, as its driver reports them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    pub name: String,
    /// Empty if the driver reports none.
    pub pci: String,
}

impl fmt::Display for Identity {
    /// Writes the name and, where it is known, the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.pci.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.pci)
        }
    }
}

/// Returns the indices of the adapters that the environment lets this process see, in its order.
pub(super) fn visible_indices(adapters: &[Identity]) -> Result<Vec<usize>> {
    match std::env::var(VISIBLE_DEVICES_VARIABLE) {
        Ok(list) if !list.trim().is_empty() => select_indices(&list, adapters),
        _ => Ok((0..adapters.len()).collect()),
    }
}

/// Returns the indices of the adapters in a list of indices, places on the PCI bus and parts of names; each once.
fn select_indices(list: &str, adapters: &[Identity]) -> Result<Vec<usize>> {
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let index = match entry.parse::<usize>() {
            Ok(index) => (index < adapters.len()).then_some(index),
            Err(_) if entry.is_empty() => None,
            Err(_) if is_pci(entry) => adapters
                .iter()
                .position(|adapter| is_at(&adapter.pci, entry)),
            Err(_) => adapters.iter().position(|adapter| is_named(adapter, entry)),
        };
        let index = index.ok_or_else(|| {
            let names: Vec<String> = adapters.iter().map(Identity::to_string).collect();
            let present = if names.is_empty() {
                "no adapter at all".into()
            } else {
                names.join(", ")
            };
            Error::Usage(format!(
                "{VISIBLE_DEVICES_VARIABLE} names \"{entry}\", which is no adapter: there is {present}"
            ))
        })?;
        if !chosen.contains(&index) {
            chosen.push(index);
        }
    }
    Ok(chosen)
}

/// Returns whether a text has the form of a place on the PCI bus, with or without its domain.
fn is_pci(text: &str) -> bool {
    text.contains(':')
        && text
            .chars()
            .all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
}

/// Returns whether a place on the PCI bus, as a driver reports it, is the one that a user names. The domain may be left
/// out, and have as many zeros as NVIDIA's tools print.
pub(super) fn is_at(pci: &str, named: &str) -> bool {
    let parse_place = |place: &str| -> Option<Vec<u32>> {
        let mut numbers: Vec<u32> = place
            .split([':', '.'])
            .map(|part| u32::from_str_radix(part, 16).ok())
            .collect::<Option<_>>()?;
        if numbers.len() == 3 {
            numbers.insert(0, 0);
        }
        Some(numbers)
    };
    !pci.is_empty() && parse_place(pci).is_some_and(|place| parse_place(named) == Some(place))
}

/// Returns whether a text is part of an adapter's name, in any case.
pub(super) fn is_named(adapter: &Identity, part: &str) -> bool {
    adapter.name.to_lowercase().contains(&part.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_adapters_by_index_place_and_name() {
        let adapter = |name: &str, pci: &str| Identity {
            name: name.into(),
            pci: pci.into(),
        };
        let all = [
            adapter("NVIDIA H200", "0000:41:00.0"),
            adapter("NVIDIA H200", "0000:81:00.0"),
            adapter("llvmpipe", ""),
        ];
        let indices = |list: &str| select_indices(list, &all).unwrap();
        assert_eq!(indices("1"), [1]);
        assert_eq!(indices("2, 0,2"), [2, 0]);
        assert_eq!(indices("81:00.0"), [1]);
        assert_eq!(indices("00000000:41:00.0,LLVM"), [0, 2]);
        assert_eq!(indices("h200"), [0]);
        for wrong in ["3", "0,", "0001:41:00.0", "41:00.1", "radeon", "-1"] {
            let message = select_indices(wrong, &all).unwrap_err().to_string();
            assert!(
                message.ends_with("NVIDIA H200 (0000:81:00.0), llvmpipe")
                    && message.contains(VISIBLE_DEVICES_VARIABLE),
                "{message}"
            );
        }
        assert!(
            select_indices("0", &[])
                .unwrap_err()
                .to_string()
                .contains("no adapter at all")
        );
    }
}
