//! The entries of a stream with the largest keys, in bounded memory.

use std::collections::BTreeMap;

/// At most `limit` entries. Of equal keys the earliest stays, so that the entries do not depend on batches.
#[derive(Debug)]
pub struct TopEntries<T> {
    limit: usize,
    entries: BTreeMap<(u64, u64), T>,
}

impl<T> TopEntries<T> {
    /// Returns an empty list, which keeps only the `limit` entries with the largest keys.
    pub fn new(limit: usize) -> TopEntries<T> {
        TopEntries {
            limit,
            entries: BTreeMap::new(),
        }
    }

    /// Adds the entry that `make_entry` returns if `key` is among the largest; of equal keys, that with the lower
    /// `input_index` (its index in the input) is kept.
    pub fn offer(&mut self, key: f64, input_index: u64, make_entry: impl FnOnce() -> T) {
        let sort_key = (sortable_bits(key), u64::MAX - input_index);
        let smallest = self.entries.first_key_value().map(|(key, _)| *key);
        let is_too_small = smallest.is_none_or(|smallest| sort_key < smallest);
        if self.entries.len() >= self.limit && is_too_small {
            return;
        }
        self.entries.insert(sort_key, make_entry());
        if self.entries.len() > self.limit {
            self.entries.pop_first();
        }
    }

    /// Returns (index in the input, entry) of all entries, the largest key first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries
            .iter()
            .rev()
            .map(|((_, reversed_index), entry)| (u64::MAX - reversed_index, entry))
    }
}

/// Converts a number to bits that, as integers, sort as the numbers do, with NaN as the least.
fn sortable_bits(x: f64) -> u64 {
    if x.is_nan() {
        return 0;
    }
    let bits = x.to_bits();
    if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_entries_stay_and_the_earliest_of_equal_keys() {
        let mut top = TopEntries::new(4);
        let keys = [1.0, -2.0, f64::NAN, 5.0, 1.0, f64::INFINITY, 1.0, -0.5];
        for (k, key) in keys.into_iter().enumerate() {
            top.offer(key, k as u64, || k);
        }
        assert_eq!(
            top.iter()
                .map(|(input_index, k)| (input_index, *k))
                .collect::<Vec<_>>(),
            [(5, 5), (3, 3), (0, 0), (4, 4)]
        );
        let mut empty = TopEntries::new(0);
        empty.offer(1.0, 0, || ());
        assert_eq!(empty.iter().count(), 0);
    }
}
