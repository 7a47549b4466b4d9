//! A kernel before it meets a device: its text, generated declarations, bindings and dispatch, as plain data.

use super::buffers::stride;
use super::layout::Layout;
use super::source::{Constants, Source};
use crate::solver::recording::{BufferId, Recording, Scope};

/// A buffer of a population.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    Members,
    State,
    Control,
    Limits,
    Arguments,
    Simplices,
    /// The kernel's own table.
    Table,
    Block(BufferId),
}

/// A storage buffer of a kernel; its number is its place in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub target: Target,
    pub write: bool,
}

/// Workgroups: x = ⌈members · numerator / denominator⌉, y, z.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispatch {
    pub numerator: u32,
    pub denominator: u32,
    pub y: u32,
    pub z: u32,
    /// Of all active members, not of those alone that take part in a round.
    pub of_all: bool,
}

impl Dispatch {
    /// 64 members a workgroup.
    pub const MEMBERS: Dispatch = Dispatch { numerator: 1, denominator: 64, y: 1, z: 1, of_all: false };
    /// A workgroup a member.
    pub const WORKGROUPS: Dispatch = Dispatch { numerator: 1, denominator: 1, y: 1, z: 1, of_all: false };

    /// 64 pixels of a member a workgroup.
    pub fn pixels(pixels: usize) -> Dispatch {
        Dispatch { y: pixels.div_ceil(64) as u32, ..Dispatch::WORKGROUPS }
    }

    pub fn x(self, members: usize) -> u32 {
        let groups = (members as u64 * u64::from(self.numerator)).div_ceil(u64::from(self.denominator));
        groups.min(super::buffers::MAX_MEMBERS as u64) as u32
    }
}

/// One kernel of a round.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub stem: &'static str,
    text: &'static str,
    pub uses: Vec<&'static str>,
    pub constants: Constants,
    pub bindings: Vec<Binding>,
    pub dispatch: Dispatch,
    /// The user's code: its name and text.
    pub user: Option<(String, String)>,
    pub table: Vec<f32>,
}

impl Kernel {
    /// The kernel `stem`, bound to the list of members.
    pub fn new(stem: &'static str, text: &'static str, layout: Layout, dispatch: Dispatch) -> Kernel {
        let mut constants = Constants::default();
        layout.constants(&mut constants);
        let mut kernel = Kernel {
            stem,
            text,
            uses: Vec::new(),
            constants,
            bindings: Vec::new(),
            dispatch,
            user: None,
            table: Vec::new(),
        };
        kernel.bind("members", "u32", Target::Members, stem == "compact");
        kernel
    }

    /// Declares the next binding.
    pub fn bind(&mut self, name: &str, element: &str, target: Target, write: bool) {
        let access = if write { "read_write" } else { "read" };
        let number = self.bindings.len();
        self.constants.line(&format!("@group(0) @binding({number}) var<storage, {access}> {name}: array<{element}>;"));
        self.bindings.push(Binding { target, write });
    }

    pub fn state(&mut self, write: bool) {
        self.bind("state", "f32", Target::State, write);
    }

    /// Declares a buffer of the recording and NAME_base(position, spectrum), where the member's block starts.
    pub fn block(&mut self, recording: &Recording, name: &str, element: &str, id: BufferId, write: bool) {
        self.bind(name, element, Target::Block(id), write);
        let stride = match element {
            "f16" => 2 * stride(recording, id),
            "vec2<u32>" => stride(recording, id) / 2,
            "vec4<f32>" => stride(recording, id) / 4,
            _ => stride(recording, id),
        };
        let start = match recording.block(id).scope {
            Scope::Constant | Scope::Batch => "0u".to_owned(),
            Scope::Spectrum => format!("spectrum * {stride}u"),
            Scope::Member => format!("position * {stride}u"),
        };
        self.constants.line(&format!("fn {name}_base(position: u32, spectrum: u32) -> u32 {{ return {start}; }}"));
    }

    pub fn source(&self) -> Source {
        let user = self.user.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        Source::join(&self.constants, self.stem, self.text, &self.uses, user)
    }
}
