//! A shader before it meets a device: its text, generated declarations, bindings and dispatch, as plain data.

use super::product::Products;
use super::source::{Constants, UserCode, WgslSource};
use crate::buffers::{Buffer, BufferId, Declared, Kind, Parameter, Scope};

/// Maximum number of members of a population: that of workgroups of a dispatch along x.
pub const MAX_MEMBERS: usize = 65_535;
/// Number of 32-bit elements of whose multiples blocks begin, because buffers are bound as vec4.
const BLOCK_ALIGNMENT: usize = 4;

/// Information that a kernel needs to describe its shader.
#[derive(Clone, Debug)]
pub struct ShaderContext<'a> {
    pub declared: Declared<'a>,
    /// The constants that all shaders of a population share.
    pub layout: Constants,
    /// The kernels of the device's products.
    pub products: Products,
}

impl<'a> ShaderContext<'a> {
    /// Returns the parameters of the recording.
    pub fn parameters(&self) -> &'a [Parameter] {
        self.declared.parameters
    }

    /// Returns the recording's declaration of the buffer with this id.
    pub fn block(&self, id: BufferId) -> &'a Buffer {
        self.declared.block(id)
    }

    /// Starts a shader of the WGSL `text`, with this population's constants; other bindings are to be added.
    pub fn start_shader(
        &self,
        stem: &'static str,
        text: &'static str,
        dispatch: Dispatch,
    ) -> Shader {
        Shader::new(stem, text, self.layout.clone(), dispatch)
    }
}

/// Returns the number of 32-bit elements between two blocks of a buffer.
pub fn stride(block: &Buffer) -> usize {
    let length = if block.kind == Kind::Half {
        block.length.div_ceil(2)
    } else {
        block.length
    };
    length.next_multiple_of(BLOCK_ALIGNMENT)
}

/// A buffer of a population.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BindingTarget {
    Members,
    State,
    Control,
    Limits,
    Arguments,
    /// Numbers of members that enter or leave.
    Transfer,
    /// Constant table of the kernel.
    Table,
    Block(BufferId),
}

/// A storage buffer of a kernel. Bindings are numbered in the order of the list.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub target: BindingTarget,
    pub write: bool,
}

/// Workgroups: x = ⌈members · numerator / denominator⌉, y, z.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    pub numerator: u32,
    pub denominator: u32,
    pub y: u32,
    pub z: u32,
    /// True if the members are all active ones, false if only those that take part in a round.
    pub of_all: bool,
}

impl Dispatch {
    /// One workgroup per 64 members.
    pub const MEMBERS: Dispatch = Dispatch {
        numerator: 1,
        denominator: 64,
        y: 1,
        z: 1,
        of_all: false,
    };
    /// One workgroup per member.
    pub const WORKGROUPS: Dispatch = Dispatch {
        numerator: 1,
        denominator: 1,
        y: 1,
        z: 1,
        of_all: false,
    };

    /// Returns a dispatch of one workgroup per 64 pixels, for each member.
    pub fn pixels(pixels: usize) -> Dispatch {
        Dispatch {
            y: pixels.div_ceil(64) as u32,
            ..Dispatch::WORKGROUPS
        }
    }

    /// Returns the number of workgroups along x for so many members, at most `MAX_MEMBERS`.
    pub fn x(self, members: usize) -> u32 {
        let groups =
            (members as u64 * u64::from(self.numerator)).div_ceil(u64::from(self.denominator));
        groups.min(MAX_MEMBERS as u64) as u32
    }
}

/// One shader of a round.
#[derive(Clone, Debug)]
pub struct Shader {
    pub stem: &'static str,
    text: &'static str,
    pub uses: Vec<&'static str>,
    pub constants: Constants,
    pub bindings: Vec<Binding>,
    pub dispatch: Dispatch,
    pub user: Option<UserCode>,
    pub table: Vec<f32>,
}

impl Shader {
    /// Begins a shader of this name (`stem`), WGSL text and constants. Its first binding is the list of members, which
    /// only `compact` writes.
    pub fn new(
        stem: &'static str,
        text: &'static str,
        constants: Constants,
        dispatch: Dispatch,
    ) -> Shader {
        let mut shader = Shader {
            stem,
            text,
            uses: Vec::new(),
            constants,
            bindings: Vec::new(),
            dispatch,
            user: None,
            table: Vec::new(),
        };
        shader.bind("members", "u32", BindingTarget::Members, stem == "compact");
        shader
    }

    /// Declares the next binding, a WGSL storage array called `name`, writable if `write`.
    pub fn bind(&mut self, name: &str, element: &str, target: BindingTarget, write: bool) {
        let access = if write { "read_write" } else { "read" };
        let number = self.bindings.len();
        self.constants.line(&format!(
            "@group(0) @binding({number}) var<storage, {access}> {name}: array<{element}>;"
        ));
        self.bindings.push(Binding { target, write });
    }

    /// Declares the population's state buffer as the next binding.
    pub fn bind_state(&mut self, write: bool) {
        self.bind("state", "f32", BindingTarget::State, write);
    }

    /// Declares a buffer of the recording and NAME_base(position, spectrum), where the member's block starts.
    pub fn bind_block(
        &mut self,
        context: &ShaderContext<'_>,
        name: &str,
        element: &str,
        id: BufferId,
        write: bool,
    ) {
        self.bind(name, element, BindingTarget::Block(id), write);
        let block = context.block(id);
        let stride = match element {
            "f16" => 2 * stride(block),
            "vec2<u32>" => stride(block) / 2,
            "vec4<f32>" => stride(block) / 4,
            _ => stride(block),
        };
        let start = match block.scope {
            Scope::Constant | Scope::Batch => "0u".to_owned(),
            Scope::Spectrum => format!("spectrum * {stride}u"),
            Scope::Member => format!("position * {stride}u"),
        };
        self.constants.line(&format!(
            "fn {name}_base(position: u32, spectrum: u32) -> u32 {{ return {start}; }}"
        ));
    }

    /// Returns the complete WGSL source, which knows the file and line that each of its lines comes from.
    pub fn source(&self) -> WgslSource {
        WgslSource::join(
            &self.constants,
            self.stem,
            self.text,
            &self.uses,
            self.user.as_ref(),
        )
    }
}
