//! The entries of a stream with the largest keys, in bounded memory.

use std::collections::BTreeMap;

/// At most `limit` entries. Of equal keys the earliest stays, so that the entries do not depend on batches.
#[derive(Debug)]
pub struct Best<T> {
    limit: usize,
    entries: BTreeMap<(u64, u64), T>,
}

impl<T> Best<T> {
    /// Returns an empty list, which keeps only the `limit` entries with the largest keys.
    pub fn new(limit: usize) -> Best<T> {
        Best {
            limit,
            entries: BTreeMap::new(),
        }
    }

    /// Adds the entry that `make` returns if `key` is among the largest; of equal keys, that with the lower `order`
    /// (its index in the input) is kept.
    pub fn offer(&mut self, key: f64, order: u64, make: impl FnOnce() -> T) {
        let key = (ascending(key), u64::MAX - order);
        let smallest = self.entries.first_key_value().map(|(key, _)| *key);
        if self.entries.len() >= self.limit && smallest.is_none_or(|smallest| key < smallest) {
            return;
        }
        self.entries.insert(key, make());
        if self.entries.len() > self.limit {
            self.entries.pop_first();
        }
    }

    /// Returns (order, entry) of all entries, the largest key first; order is the number that was given with the entry.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries
            .iter()
            .rev()
            .map(|((_, order), entry)| (u64::MAX - order, entry))
    }
}

/// Converts a number to bits that, as integers, sort as the numbers do, with NaN as the least.
fn ascending(x: f64) -> u64 {
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
    fn the_largest_stay_and_the_earliest_of_equals() {
        let mut best = Best::new(4);
        let keys = [1.0, -2.0, f64::NAN, 5.0, 1.0, f64::INFINITY, 1.0, -0.5];
        for (k, key) in keys.into_iter().enumerate() {
            best.offer(key, k as u64, || k);
        }
        assert_eq!(
            best.iter()
                .map(|(order, k)| (order, *k))
                .collect::<Vec<_>>(),
            [(5, 5), (3, 3), (0, 0), (4, 4)]
        );
        let mut none = Best::new(0);
        none.offer(1.0, 0, || ());
        assert_eq!(none.iter().count(), 0);
    }
}
