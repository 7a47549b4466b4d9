//! The code that the targets run; `cargo test` runs the same code over the corpus: `tests/fuzzed`.

#[path = "../../tests/fuzzed/harness.rs"]
pub mod harness;
#[path = "../../tests/fuzzed/recipes.rs"]
mod recipes;
