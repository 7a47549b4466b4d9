//! Checks of users' WGSL by naga, in its place in the source of the `custom` kernel, between popfit's functions and
//! `fill`. This is all that `curve_model` imports of `gpu`.

use std::ops::Range;
use std::sync::Arc;

use wgpu::naga::front::wgsl::parse_str;
use wgpu::naga::valid::{
    Capabilities, ModuleInfo, ShaderStages, UniformityRequirements, ValidationFlags, Validator,
};
use wgpu::naga::{
    AddressSpace, ArraySize, Function, Handle, Module, ScalarKind, Span, Type, TypeInner,
};

use super::layout::Layout;
use crate::error::{Error, Result};
use crate::kernels::product::{Products, Variant};
use crate::kernels::shader::ShaderContext;
use crate::recording::{Custom, Kind, Parameter, Recording, Scope};

/// Maximum number of bytes of a source.
const MAX_SOURCE_BYTES: usize = 100_000;

/// Names that WGSL has only for the fragments of a picture.
const FRAGMENT_ONLY_NAMES: [&str; 4] = ["discard", "dpdx", "dpdy", "fwidth"];

/// Numbers of predictors and parameters of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelShape {
    pub predictors: usize,
    pub parameters: usize,
}

/// Functions and types that a user's source offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelFunctions {
    /// `x` is an `f32`, not an array of one.
    pub scalar: bool,
    /// There is a function `derivative`.
    pub derivative: bool,
}

/// A user's source in its place in the shader, between popfit's own.
struct PlacedSource {
    text: String,
    /// Range of the user's bytes in `text`.
    user: Range<usize>,
}

/// Parses a user's WGSL and returns what it offers; fails without a proper `model`, or if something is forbidden.
pub(crate) fn inspect_model(user: &str, shape: ModelShape) -> Result<ModelFunctions> {
    if user.len() > MAX_SOURCE_BYTES {
        return Err(Error::model_setting(
            "source",
            format!(
                "WGSL of {} bytes is longer than {MAX_SOURCE_BYTES}",
                user.len()
            ),
        ));
    }
    let ModelShape {
        predictors,
        parameters,
    } = shape;
    let kind = if predictors == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {predictors}>")
    };
    let empty_fill = format!(
        "fn fill(x: {kind}, u: ptr<function, array<f32, {parameters}>>, out: ptr<function, array<f32, 1>>) {{}}"
    );
    let source = PlacedSource::new(user, &empty_fill, 1, shape);
    let module = source.parse()?;
    source.check_globals(&module)?;
    let info = source.validate(&module)?;
    // Check each function of the user's, and `model` and `derivative` by their signatures.
    let mut model_takes_scalar = None;
    let mut derivative = false;
    for (handle, function) in module.functions.iter() {
        let span = module.functions.get_span(handle);
        if !source.is_of_user(span) {
            continue;
        }
        source.check_function(&module, &info, handle)?;
        match function.name.as_deref() {
            Some("model") => {
                model_takes_scalar =
                    Some(source.model_takes_scalar(&module, function, span, shape)?)
            }
            Some("derivative") => {
                source.check_derivative(&module, function, span, shape)?;
                derivative = true;
            }
            _ => {}
        }
    }
    match model_takes_scalar {
        Some(scalar) => Ok(ModelFunctions { scalar, derivative }),
        None => Err(source.make_error(None, format!("there is no {}", model_signature(shape)))),
    }
}

/// Fails unless the user's WGSL and popfit's `rest`, which defines `fill` for `rows` rows, are a valid shader.
pub(crate) fn validate_model(user: &str, rest: &str, rows: usize, shape: ModelShape) -> Result<()> {
    let source = PlacedSource::new(user, rest, rows, shape);
    let module = source.parse()?;
    source.validate(&module).map(|_| ())
}

/// Returns the WGSL signature that a user's `model` must have, for messages.
fn model_signature(
    ModelShape {
        predictors,
        parameters,
    }: ModelShape,
) -> String {
    let alternative = if predictors == 1 { " (or x: f32)" } else { "" };
    format!(
        "fn model(p: array<f32, {parameters}>, x: array<f32, {predictors}>) -> f32{alternative}"
    )
}

impl PlacedSource {
    /// Assembles the complete shader around the user's WGSL, and records which bytes of it are the user's.
    fn new(user: &str, rest: &str, rows: usize, shape: ModelShape) -> PlacedSource {
        // 1. Record a stage of the user's model, and make its shader.
        let parameter = |p: usize| Parameter {
            name: p.to_string(),
            origin: 0.0,
            scale: 1.0,
        };
        let parameters = shape.parameters;
        let mut recording = Recording {
            parameters: (0..parameters).map(parameter).collect(),
            ..Recording::default()
        };
        let stage = Custom {
            name: "of the user".into(),
            output: recording.buffer("model", Scope::Member, Kind::Float, rows),
            rows,
            pixels: 1,
            predictors: shape.predictors,
            predictor: recording.buffer("predictor", Scope::Batch, Kind::Float, shape.predictors),
            scale: Some(recording.buffer("scale", Scope::Spectrum, Kind::Float, 3 * parameters)),
            table: Arc::default(),
            wgsl: format!("{user}\n{rest}"),
            rust: Arc::new(|_, _| {}),
            many: None,
        };
        let layout = Layout {
            parameters,
            capacity: 1,
        }
        .shader_constants();
        let products = Products {
            full: Variant::Registers,
            halves: Variant::Registers,
        };
        let context = ShaderContext {
            declared: recording.declared(),
            layout,
            products,
        };
        let source = stage.custom_shader(&context).source();
        // 2. Find the user's bytes in it.
        let first_line = source.first_line("model of the user");
        let count_bytes =
            |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| line.len() + 1).sum::<usize>();
        let start = count_bytes(&mut source.text.lines().take(first_line));
        let length = count_bytes(&mut user.lines());
        PlacedSource {
            user: start..start + length,
            text: source.text,
        }
    }

    /// Returns whether a span begins in the user's part of the shader.
    fn is_of_user(&self, span: Span) -> bool {
        span.to_range()
            .is_some_and(|range| self.user.contains(&range.start))
    }

    /// Returns whether popfit's own source calls a function of this name, whose place a user's would take.
    fn is_called_outside(&self, name: &str) -> bool {
        let call = format!("{name}(");
        let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let has_call = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            code.match_indices(&call)
                .any(|(start, _)| !code[..start].ends_with(is_part_of_name))
        };
        [&self.text[..self.user.start], &self.text[self.user.end..]]
            .iter()
            .any(|text| text.lines().any(has_call))
    }

    /// Parses the complete shader; an error names line and column of the user's text.
    fn parse(&self) -> Result<Module> {
        parse_str(&self.text).map_err(|error| {
            let spans: Vec<Span> = error.labels().map(|(span, _)| span).collect();
            let notes = error.notes().map(|note| format!("; {note}")).collect::<String>();
            if let Some(name) = error.message().strip_prefix("redefinition of ")
                && !spans.iter().all(|span| self.is_of_user(*span))
            {
                let message = format!("the name {name} is taken by popfit: take another");
                return self.make_error(self.choose_span(spans), message);
            }
            let message = error.message();
            // naga's own message gives advice for whole shaders.
            if message.contains("global directive") || message.contains("extension is not enabled") {
                let message =
                    "a model enables and requires nothing, and has no diagnostic: it is part of popfit's source";
                return self.make_error(self.choose_span(spans), message);
            }
            self.make_error(self.choose_span(spans), format!("{message}{notes}"))
        })
    }

    /// Validates the parsed shader; an error names line and column of the user's text.
    fn validate(&self, module: &Module) -> Result<ModuleInfo> {
        Validator::new(ValidationFlags::all(), Capabilities::empty())
            .validate(module)
            .map_err(|error| {
                let mut spans: Vec<Span> = error.spans().map(|(span, _)| *span).collect();
                // The shortest span first: an expression before the function that contains it.
                spans.sort_by_key(|span| span.to_range().map_or(0, |range| range.len()));
                let mut message = error.as_inner().to_string();
                let mut cause = std::error::Error::source(error.as_inner());
                while let Some(error) = cause {
                    message += &format!(": {error}");
                    cause = error.source();
                }
                self.make_error(self.choose_span(spans), message)
            })
    }

    /// Returns the first span that lies in the user's text, or else the first of all; `None` if there are none.
    fn choose_span(&self, spans: Vec<Span>) -> Option<Span> {
        spans
            .iter()
            .find(|span| self.is_of_user(**span))
            .or(spans.first())
            .copied()
    }

    /// Makes an error that names the line and column of a span in the user's text: its end if behind, its beginning if
    /// `None`.
    fn make_error(&self, span: Option<Span>, message: impl Into<String>) -> Error {
        let position = span
            .and_then(Span::to_range)
            .map_or(self.user.start, |range| range.start);
        let end = self.user.end.saturating_sub(1).max(self.user.start);
        let before = &self.text[self.user.start..position.clamp(self.user.start, end)];
        let line = before.matches('\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let text = self.text[self.user.clone()]
            .lines()
            .nth(line)
            .unwrap_or_default()
            .to_owned();
        Error::Wgsl {
            line: line + 1,
            column,
            message: message.into(),
            text,
        }
    }

    /// Returns where the first of some words occurs in a span of the shader; the span itself if none does.
    fn find_first_word(&self, span: Span, words: &[&str]) -> Span {
        let Some(range) = span.to_range() else {
            return span;
        };
        let text = self.text.get(range.clone()).unwrap_or_default();
        let first = words.iter().filter_map(|word| text.find(word)).min();
        first.map_or(span, |offset| {
            Span::from(range.start + offset..range.start + offset + 1)
        })
    }

    /// Fails if the user's WGSL has a global that is no constant or private variable: a buffer, override or entry
    /// point.
    fn check_globals(&self, module: &Module) -> Result<()> {
        for (handle, global) in module.global_variables.iter() {
            let span = module.global_variables.get_span(handle);
            if self.is_of_user(span)
                && (global.space != AddressSpace::Private || global.binding.is_some())
            {
                let name = global.name.as_deref().unwrap_or_default();
                let message = format!(
                    "`{name}` is a buffer or shared: a model has constants and var<private> alone"
                );
                return Err(self.make_error(Some(span), message));
            }
        }
        for (handle, _) in module.overrides.iter() {
            let span = module.overrides.get_span(handle);
            if self.is_of_user(span) {
                return Err(self.make_error(Some(span), "a model has no override; write const"));
            }
        }
        let Some(entry_point) = module
            .entry_points
            .iter()
            .find(|entry_point| entry_point.name != "main")
        else {
            return Ok(());
        };
        let message = format!(
            "`{}` is an entry point: a model has functions alone",
            entry_point.name
        );
        let offset = self.text[self.user.clone()].find(&format!("fn {}", entry_point.name));
        let start = self.user.start + offset.unwrap_or(0);
        Err(self.make_error(Some(Span::from(start..start + 1)), message))
    }

    /// Fails if a function of the user's touches a buffer, by itself or through popfit's functions, or waits for other
    /// invocations.
    fn check_function(
        &self,
        module: &Module,
        info: &ModuleInfo,
        handle: Handle<Function>,
    ) -> Result<()> {
        let span = module.functions.get_span(handle);
        let uses = &info[handle];
        let name = module.functions[handle].name.as_deref().unwrap_or_default();
        let refuse = |message: String| Err(self.make_error(Some(span), message));
        if !["model", "derivative"].contains(&name) && self.is_called_outside(name) {
            return refuse(format!(
                "the name `{name}` is taken: popfit's functions call WGSL's own"
            ));
        }
        if !uses.available_stages.contains(ShaderStages::COMPUTE) {
            let reason = "only fragments may discard, or take derivatives from pixel to pixel";
            let message = format!(
                "`{name}`: {reason}; where a model is not defined it returns nan_like(0.0)"
            );
            return Err(self.make_error(
                Some(self.find_first_word(span, &FRAGMENT_ONLY_NAMES)),
                message,
            ));
        }
        if uses
            .uniformity
            .requirements
            .contains(UniformityRequirements::WORK_GROUP_BARRIER)
        {
            return refuse(format!(
                "`{name}` has a barrier: the points of a model are evaluated apart"
            ));
        }
        for (global, variable) in module.global_variables.iter() {
            if !uses[global].is_empty()
                && !self.is_of_user(module.global_variables.get_span(global))
            {
                let buffer = variable.name.as_deref().unwrap_or_default();
                return refuse(format!(
                    "`{name}` reads popfit's buffer `{buffer}`: a model depends on p and x alone"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether `model` takes a single number x instead of an array; fails if it has another signature.
    fn model_takes_scalar(
        &self,
        module: &Module,
        function: &Function,
        span: Span,
        shape: ModelShape,
    ) -> Result<bool> {
        let result = function.result.as_ref().map(|result| result.ty);
        if let [p, x] = &function.arguments[..] {
            let takes_array = is_array(module, x.ty, shape.predictors);
            let takes_scalar = shape.predictors == 1 && is_float(module, x.ty);
            let returns_float = result.is_some_and(|ty| is_float(module, ty));
            if is_array(module, p.ty, shape.parameters)
                && (takes_array || takes_scalar)
                && returns_float
            {
                return Ok(takes_scalar);
            }
        }
        Err(self.make_error(
            Some(span),
            format!("`model` is not {}", model_signature(shape)),
        ))
    }

    /// Fails unless `derivative` takes the arguments of `model` and returns one f32 per parameter.
    fn check_derivative(
        &self,
        module: &Module,
        function: &Function,
        span: Span,
        shape: ModelShape,
    ) -> Result<()> {
        let model = module
            .functions
            .iter()
            .find(|(_, function)| function.name.as_deref() == Some("model"))
            .map(|(_, function)| function);
        let argument_types = |function: &Function| {
            function
                .arguments
                .iter()
                .map(|argument| argument.ty)
                .collect::<Vec<_>>()
        };
        let takes_same =
            model.is_some_and(|model| argument_types(model) == argument_types(function));
        let returns_array = function
            .result
            .as_ref()
            .is_some_and(|result| is_array(module, result.ty, shape.parameters));
        if takes_same && returns_array {
            return Ok(());
        }
        let message = format!(
            "`derivative` must take what `model` takes and return array<f32, {}>",
            shape.parameters
        );
        Err(self.make_error(Some(span), message))
    }
}

/// Returns whether a type of the module is f32.
fn is_float(module: &Module, ty: Handle<Type>) -> bool {
    matches!(module.types[ty].inner, TypeInner::Scalar(scalar) if scalar.kind == ScalarKind::Float && scalar.width == 4)
}

/// Returns whether a type of the module is an array of exactly `length` f32.
fn is_array(module: &Module, ty: Handle<Type>, length: usize) -> bool {
    match module.types[ty].inner {
        TypeInner::Array {
            base,
            size: ArraySize::Constant(size),
            ..
        } => size.get() as usize == length && is_float(module, base),
        _ => false,
    }
}
