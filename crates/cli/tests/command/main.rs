//! The command: what it writes, refuses and says. Each module is a subject of `TESTING.md`:
//! `cargo test --release -p popfit-cli --test command NAME::` runs one.

mod check;
mod checksums;
mod cli;
mod init;
mod outputs;
mod profile;
mod schema;
mod several_devices;
