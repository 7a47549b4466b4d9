//! Rooms, floors and knots, and the comparison of what is found with the lists of exceptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::resolve::Arrows;

/// Something that breaks a rule: its name, its size, and where to look.
#[derive(Debug, PartialEq, Eq)]
pub struct Breach {
    pub name: String,
    pub size: usize,
    pub places: Vec<String>,
}

/// Returns the room of a file: its top folder, or the file itself.
pub fn room(file: &str) -> &str {
    file.split_once('/')
        .map_or_else(|| file.trim_end_matches(".rs"), |(room, _)| room)
}

/// Returns the pairs of rooms of which the first imports the second without standing on a higher floor. The size is the
/// number of pairs of files. Two rooms that import each other are among them, wherever they stand.
pub fn climbs(arrows: &Arrows, floors: &[&[&str]]) -> Vec<Breach> {
    let floor = |room: &str| floors.iter().position(|rooms| rooms.contains(&room));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((here, there), item) in arrows {
        let (importer, imported) = (room(here), room(there));
        // a room that no floor knows may import nothing, and nobody may import it
        let goes_down =
            matches!((floor(importer), floor(imported)), (Some(high), Some(low)) if high > low);
        if importer != imported && !goes_down {
            found
                .entry(format!("{importer} -> {imported}"))
                .or_default()
                .push(format!("{here} -> {there} ({item})"));
        }
    }
    found
        .into_iter()
        .map(|(name, places)| Breach {
            name,
            size: places.len(),
            places,
        })
        .collect()
}

/// Returns the knots of more than `limit` files, the largest first. A knot is a strongly connected component. It has
/// the name of its room, or of all its rooms, and a number if an earlier one has that name.
pub fn knots(arrows: &Arrows, limit: usize) -> Vec<Breach> {
    let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (here, there) in arrows.keys() {
        targets.entry(here).or_default().push(there);
    }
    let reached: BTreeMap<_, _> = targets
        .keys()
        .map(|file| (*file, reach(&targets, file)))
        .collect();
    let both = |here: &str, there: &str| {
        reached[here].contains(there) && reached.get(there).is_some_and(|set| set.contains(here))
    };
    let rings: BTreeSet<Vec<&str>> = targets
        .keys()
        .map(|here| {
            reached[here]
                .iter()
                .copied()
                .filter(|there| both(here, there))
                .collect()
        })
        .collect();
    let mut rings: Vec<_> = rings
        .into_iter()
        .filter(|ring| ring.len() > limit)
        .collect();
    rings.sort_by_key(|ring| std::cmp::Reverse(ring.len()));
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    rings
        .iter()
        .map(|ring| {
            let rooms: BTreeSet<_> = ring.iter().map(|file| room(file)).collect();
            let rooms = rooms.into_iter().collect::<Vec<_>>().join(" + ");
            let count = used.entry(rooms.clone()).or_default();
            *count += 1;
            let name = if *count > 1 {
                format!("{rooms} {count}")
            } else {
                rooms
            };
            Breach {
                name,
                size: ring.len(),
                places: inner_arrows(arrows, ring),
            }
        })
        .collect()
}

/// Returns the files to which a way of at least one arrow leads from `start`.
fn reach<'a>(targets: &BTreeMap<&'a str, Vec<&'a str>>, start: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ends = vec![start];
    while let Some(file) = ends.pop() {
        ends.extend(
            targets
                .get(file)
                .into_iter()
                .flatten()
                .copied()
                .filter(|next| reached.insert(*next)),
        );
    }
    reached
}

fn inner_arrows(arrows: &Arrows, ring: &[&str]) -> Vec<String> {
    let inside = arrows.iter().filter(|((here, there), _)| {
        ring.contains(&here.as_str()) && ring.contains(&there.as_str())
    });
    inside
        .map(|((here, there), item)| format!("{here} -> {there} ({item})"))
        .collect()
}

/// Compares what breaks a rule with the exceptions to it, and returns what is wrong. Exceptions have to be as small as
/// what they excuse.
pub fn complaints(rule: &str, found: &[Breach], exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Breach { name, size, places } in found {
        let listed = exceptions
            .iter()
            .find(|(exception, _)| exception == name)
            .map_or(0, |(_, size)| *size);
        if *size > listed {
            let places = places.join("\n    ");
            complaints.push(format!(
                "{rule}: {name} has {size}, and the exceptions allow {listed}\n    {places}"
            ));
        } else if *size < listed {
            complaints.push(format!(
                "{rule}: {name} has {size}, so lower the {listed} in the list of exceptions"
            ));
        }
    }
    for (name, _) in exceptions {
        if !found.iter().any(|breach| breach.name == *name) {
            complaints.push(format!(
                "{rule}: {name} keeps the rule, so remove it from the list of exceptions"
            ));
        }
    }
    complaints
}
