//! The modules of a crate, as its sources declare them.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokens::{close, split, tokens, without_tests};

/// Sources by their paths below `src`, with `/` between folders.
pub type Sources = BTreeMap<String, String>;

const KINDS: [&str; 8] = [
    "fn", "struct", "enum", "union", "trait", "type", "const", "static",
];

/// One name that a `use` binds; `*` for all names.
#[derive(Debug)]
pub struct Import {
    pub path: Vec<String>,
    pub name: String,
    pub is_public: bool,
}

#[derive(Debug, Default)]
pub struct Module {
    pub file: String,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// Names of types, functions, constants and macros that stand in the module itself.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// The tokens without imports and without modules within.
    pub code: Vec<String>,
}

/// All modules of a crate; the first is its root.
#[derive(Debug)]
pub struct Crate {
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads a crate from `lib.rs` on.
    pub fn read(sources: &Sources, with_tests: bool) -> Self {
        let mut read = Self {
            modules: Vec::new(),
        };
        read.add_file(sources, "lib.rs", None, "", with_tests);
        read
    }

    /// Reads a file as a module, whose children's files are in `folder`.
    fn add_file(
        &mut self,
        sources: &Sources,
        file: &str,
        parent: Option<usize>,
        folder: &str,
        with_tests: bool,
    ) -> usize {
        let all = tokens(&sources[file]);
        let code = if with_tests { all } else { without_tests(&all) };
        let start = self.modules.len();
        self.add(&code, file, parent);
        // the modules within the file have come behind it, and each declares files of its own
        let folders = self.folders(start, folder);
        for (module, folder) in folders {
            for (name, given) in self.declared(module) {
                let (path, below) = locate(sources, file, &folder, &name, given.as_deref());
                let child = self.add_file(sources, &path, Some(module), &below, with_tests);
                self.modules[module].children.insert(name, child);
            }
        }
        start
    }

    /// Returns the modules of one file from `start` on, each with the folder of its children.
    fn folders(&self, start: usize, folder: &str) -> Vec<(usize, String)> {
        let mut folders = vec![(start, folder.to_owned())];
        let mut next = 0;
        while let Some((module, folder)) = folders.get(next).cloned() {
            folders.extend(
                self.modules[module]
                    .children
                    .iter()
                    .map(|(name, child)| (*child, join(&folder, name))),
            );
            next += 1;
        }
        folders
    }

    /// Takes the declarations of files out of a module's code: names, and the paths that `#[path]` gives.
    fn declared(&mut self, module: usize) -> Vec<(String, Option<String>)> {
        let code = &self.modules[module].code;
        let mut found = Vec::new();
        for at in 0..code.len() {
            if let ["mod", name, ";"] = words(code, at)[..] {
                let given = code[..at]
                    .rsplit(|token| matches!(token.as_str(), ";" | "{" | "}"))
                    .next()
                    .and_then(path_attribute);
                found.push((name.to_owned(), given));
            }
        }
        found
    }

    /// Reads a module's tokens, and the modules within.
    fn add(&mut self, code: &[String], file: &str, parent: Option<usize>) -> usize {
        let index = self.modules.len();
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            ..Module::default()
        });
        let (mut at, mut depth) = (0, 0);
        while at < code.len() {
            let mut end = at + 1;
            match words(code, at)[..] {
                ["mod", name, "{"] if is_name(name) => {
                    end = close(code, at + 2) + 1;
                    let child = self.add(&code[at + 3..end - 1], file, Some(index));
                    self.modules[index].children.insert(name.to_owned(), child);
                }
                ["use", next, _] if next != "<" => {
                    end = at
                        + code[at..]
                            .iter()
                            .position(|token| token == ";")
                            .expect("an import ends");
                    let mut names = Vec::new();
                    flatten(&code[at + 1..end], &[], &mut names);
                    let is_public = is_public(&code[..at]);
                    let imports = names.into_iter().map(|(path, name)| Import {
                        path,
                        name,
                        is_public,
                    });
                    self.modules[index].imports.extend(imports);
                }
                [word, next, third] => {
                    let name = match word {
                        "macro_rules" => third,
                        _ if KINDS.contains(&word) => {
                            if next == "mut" {
                                third
                            } else {
                                next
                            }
                        }
                        _ => "",
                    };
                    if depth == 0 && is_name(name) && !KINDS.contains(&name) {
                        self.modules[index].items.insert(name.to_owned());
                    }
                    depth += i32::from(word == "{") - i32::from(word == "}");
                    self.modules[index].code.push(word.to_owned());
                }
                _ => {}
            }
            at = end;
        }
        index
    }
}

/// Returns three tokens from `at` on, empty ones behind the end.
fn words(code: &[String], at: usize) -> [&str; 3] {
    [0, 1, 2].map(|offset| code.get(at + offset).map_or("", String::as_str))
}

/// Says whether a token is a word that begins with a letter.
pub fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Returns the file that `mod name;` means, and the folder of that module's children.
fn locate(
    sources: &Sources,
    file: &str,
    folder: &str,
    name: &str,
    given: Option<&str>,
) -> (String, String) {
    if let Some(given) = given {
        let path = join(
            file.rsplit_once('/').map_or("", |(folder, _)| folder),
            given,
        );
        let below = path
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_owned();
        return (path, below);
    }
    let below = join(folder, name);
    let spots = [format!("{below}.rs"), format!("{below}/mod.rs")];
    let path = spots.into_iter().find(|path| sources.contains_key(path));
    (
        path.unwrap_or_else(|| panic!("{file} declares {name}, which has no file")),
        below,
    )
}

/// Returns the path of the last `#[path = "…"]` among the attributes before a declaration.
fn path_attribute(attributes: &[String]) -> Option<String> {
    let at = attributes.iter().rposition(|token| token == "path")?;
    attributes.get(at + 2)?.strip_prefix('"').map(str::to_owned)
}

/// Says whether the tokens before an import end with `pub` or `pub(…)`.
fn is_public(before: &[String]) -> bool {
    let end = match before {
        [.., last] if last == ")" => before.iter().rposition(|token| token == "(").unwrap_or(0),
        _ => before.len(),
    };
    end > 0 && before[end - 1] == "pub"
}

/// Turns `a::{b as c, d::*}` into pairs of a path and the name that it binds. Paths from `::` on lead out of the crate.
fn flatten(tree: &[String], head: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let mut path = head.to_vec();
    for (at, token) in tree.iter().enumerate() {
        match token.as_str() {
            "::" if path.is_empty() => return,
            "::" => {}
            "{" => {
                return split(&tree[at + 1..close(tree, at)])
                    .iter()
                    .for_each(|part| flatten(part, &path, found));
            }
            "*" => return found.push((path, "*".to_owned())),
            "as" => return found.push((without_self(path), tree[at + 1].clone())),
            _ => path.push(token.clone()),
        }
    }
    let path = without_self(path);
    if let Some(name) = path.last().cloned() {
        found.push((path, name));
    }
}

fn without_self(mut path: Vec<String>) -> Vec<String> {
    if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
        path.pop();
    }
    path
}
