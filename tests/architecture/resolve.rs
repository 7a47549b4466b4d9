//! Resolution of names: the file that defines what another file names.
//!
//! An arrow goes from a file to the file that defines an item which it names: in an import, in a path within code or
//! types, or as a bare name that a re-export or a glob brings in. Paths are followed through `use`, `pub use`, `as` and
//! `*`. The import of a module counts by the items that are named through it. A method call makes no arrow, because the
//! type of its receiver is not known here.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::room;
use crate::modules::{Crate, Import, is_name};

/// Arrows between files, each with one of the items that it stands for.
pub type Arrows = BTreeMap<(String, String), String>;

/// A module and an item may have one name, so each is looked up by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Modules,
    Items,
}

#[derive(Clone, Copy, Debug)]
enum Meaning {
    Module(usize),
    /// An item that stands in the file of a module.
    Item(usize),
}

/// Names that are being looked up, so that imports in a circle end.
type Pending = BTreeSet<(usize, String, Space)>;

impl Crate {
    /// Returns the arrows between all files.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (index, module) in self.modules.iter().enumerate() {
            for import in &module.imports {
                self.add_arrow(&mut arrows, index, &import.path, import.is_public);
            }
            for path in paths(&module.code) {
                self.add_arrow(&mut arrows, index, &path, false);
            }
        }
        arrows
    }

    /// Returns the imports from this crate that lead to nothing, which are failures of the reader.
    pub fn lost_imports(&self) -> Vec<String> {
        let mut lost = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            let ours =
                |import: &&Import| matches!(import.path[0].as_str(), "crate" | "self" | "super");
            for Import { path, .. } in module.imports.iter().filter(ours) {
                let leads = |space| {
                    self.follow(index, path, space, &mut Pending::new())
                        .is_some()
                };
                if !leads(Space::Items) && !leads(Space::Modules) {
                    lost.push(format!("{}: {}", module.file, path.join("::")));
                }
            }
        }
        lost
    }

    /// Adds the arrow to the file that defines what a path means. A re-export counts between rooms; within a room it is
    /// the usual way to say what a folder offers.
    fn add_arrow(&self, arrows: &mut Arrows, from: usize, path: &[String], is_public: bool) {
        if let Some(Meaning::Item(owner)) =
            self.follow(from, path, Space::Items, &mut Pending::new())
        {
            let (here, there) = (&self.modules[from].file, &self.modules[owner].file);
            if here != there && !(is_public && room(here) == room(there)) {
                arrows
                    .entry((here.clone(), there.clone()))
                    .or_insert_with(|| path.join("::"));
            }
        }
    }

    /// Follows a path; `None` if it leads out of the crate, or to a module where an item is wanted.
    fn follow(
        &self,
        from: usize,
        path: &[String],
        space: Space,
        pending: &mut Pending,
    ) -> Option<Meaning> {
        let mut here = from;
        for (at, word) in path.iter().enumerate() {
            let is_last = at + 1 == path.len();
            here = match word.as_str() {
                "crate" => 0,
                "self" => here,
                "super" => self.modules[here].parent?,
                _ if is_last && space == Space::Modules => {
                    return self.meaning(here, word, space, from, pending);
                }
                _ => match self.meaning(here, word, Space::Modules, from, pending) {
                    Some(Meaning::Module(module)) if !is_last => module,
                    // behind an item stand only its variants and associated items
                    found => {
                        let item = self.meaning(here, word, Space::Items, from, pending);
                        let made = || self.made_by_macro(here, word, at > 0 && found.is_none());
                        return item.or_else(made);
                    }
                },
            };
        }
        (space == Space::Modules).then_some(Meaning::Module(here))
    }

    /// Takes a name that was not found behind a module's path for an item that a macro makes in that module.
    fn made_by_macro(&self, here: usize, word: &str, is_possible: bool) -> Option<Meaning> {
        let is_imported = self.modules[here]
            .imports
            .iter()
            .any(|import| import.name == word);
        (is_possible && !is_imported).then_some(Meaning::Item(here))
    }

    /// Returns what a name in module `here` means for code in module `viewer`, which sees private imports of the
    /// modules around it.
    fn meaning(
        &self,
        here: usize,
        name: &str,
        space: Space,
        viewer: usize,
        pending: &mut Pending,
    ) -> Option<Meaning> {
        if !pending.insert((here, name.to_owned(), space)) {
            return None;
        }
        let module = &self.modules[here];
        let own = match space {
            Space::Modules => module
                .children
                .get(name)
                .map(|child| Meaning::Module(*child)),
            Space::Items => module.items.contains(name).then_some(Meaning::Item(here)),
        };
        let found = own.or_else(|| self.imported(here, name, space, viewer, pending));
        pending.remove(&(here, name.to_owned(), space));
        found
    }

    /// Returns what a name means that the imports of module `here` bring in.
    fn imported(
        &self,
        here: usize,
        name: &str,
        space: Space,
        viewer: usize,
        pending: &mut Pending,
    ) -> Option<Meaning> {
        let module = &self.modules[here];
        let is_seen = |import: &&Import| import.is_public || self.is_within(viewer, here);
        let mut named = module
            .imports
            .iter()
            .filter(is_seen)
            .filter(|import| import.name == name)
            .peekable();
        if named.peek().is_some() {
            // an import, be it from another crate, hides what globs bring
            return named.find_map(|import| self.follow(here, &import.path, space, pending));
        }
        module
            .imports
            .iter()
            .filter(is_seen)
            .filter(|import| import.name == "*")
            .find_map(
                |import| match self.follow(here, &import.path, Space::Modules, pending)? {
                    Meaning::Module(target) => self.meaning(target, name, space, here, pending),
                    Meaning::Item(_) => None,
                },
            )
    }

    /// Says whether a module is another one, or stands in it.
    fn is_within(&self, module: usize, ancestor: usize) -> bool {
        let mut line = std::iter::successors(Some(module), |module| self.modules[*module].parent);
        line.any(|module| module == ancestor)
    }
}

/// Returns the paths in code. A word by itself is one if it may be a type or a constant, or if it is called; fields and
/// methods are not.
fn paths(code: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < code.len() {
        let start = at;
        at += 1;
        if !is_name(&code[start]) {
            continue;
        }
        while code.get(at).is_some_and(|token| token == "::")
            && code.get(at + 1).is_some_and(|token| is_name(token))
        {
            at += 2;
        }
        let path: Vec<_> = code[start..at].iter().step_by(2).cloned().collect();
        if is_free(&code[..start]) && (path.len() > 1 || may_be_item(&code[start], &code[at..])) {
            found.insert(path);
        }
    }
    found
}

/// Says whether a word behind these tokens can be the beginning of a path.
fn is_free(before: &[String]) -> bool {
    match before {
        [.., first, last] if last == "." => first == ".",
        [.., last] => !matches!(last.as_str(), "::" | "fn"),
        [] => true,
    }
}

fn may_be_item(word: &str, after: &[String]) -> bool {
    let next = |offset: usize| after.get(offset).map_or("", String::as_str);
    let is_called = next(0) == "(" || (next(0) == "::" && next(1) == "<");
    let is_macro = next(0) == "!" && matches!(next(1), "(" | "[" | "{");
    word.starts_with(char::is_uppercase) || is_called || is_macro
}
