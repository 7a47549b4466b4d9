//! The stages that a profile names.

/// What the host does, in the order of a profile.
pub const HOST: [&str; 8] = [
    "read",
    "prepare",
    "first guess",
    "fit",
    "finish",
    "posterior",
    "hash",
    "write",
];
/// What a device does.
pub const DEVICE: [&str; 8] = [
    "upload",
    "hidden",
    "template",
    "observe",
    "normal matrix",
    "step",
    "compact",
    "readback",
];
