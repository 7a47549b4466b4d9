//! Users' WGSL, checked by naga where it will stand: in the source of the `custom` kernel, between popfit's functions
//! and `fill`. This is all that `curve_model` imports of `gpu`.

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

/// Most bytes of a source.
const LONGEST: usize = 100_000;

/// Names that WGSL has only for the fragments of a picture.
const OF_FRAGMENTS: [&str; 4] = ["discard", "dpdx", "dpdy", "fwidth"];

/// Numbers of predictors and parameters of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub predictors: usize,
    pub parameters: usize,
}

/// Functions and types that a user's source offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// `x` is an `f32`, not an array of one.
    pub scalar: bool,
    /// There is a function `derivative`.
    pub derivative: bool,
}

/// A user's source between popfit's own, as the shader has it.
struct Placed {
    text: String,
    /// Its bytes in `text`.
    user: Range<usize>,
}

/// Parses a user's WGSL and returns what it offers; fails without a proper `model`, or if something is forbidden.
pub(crate) fn inspect(user: &str, shape: Shape) -> Result<Offer> {
    if user.len() > LONGEST {
        return Err(Error::model_setting(
            "source",
            format!("WGSL of {} bytes is longer than {LONGEST}", user.len()),
        ));
    }
    let Shape {
        predictors,
        parameters,
    } = shape;
    let kind = if predictors == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {predictors}>")
    };
    let nothing = format!(
        "fn fill(x: {kind}, u: ptr<function, array<f32, {parameters}>>, out: ptr<function, array<f32, 1>>) {{}}"
    );
    let placed = Placed::new(user, &nothing, 1, shape);
    let module = placed.parse()?;
    placed.check_globals(&module)?;
    let info = placed.validate(&module)?;
    let mut offer = None;
    let mut derivative = false;
    for (handle, function) in module.functions.iter() {
        let span = module.functions.get_span(handle);
        if !placed.holds(span) {
            continue;
        }
        placed.check_function(&module, &info, handle)?;
        match function.name.as_deref() {
            Some("model") => {
                offer = Some(placed.model_takes_scalar(&module, function, span, shape)?)
            }
            Some("derivative") => {
                placed.check_derivative(&module, function, span, shape)?;
                derivative = true;
            }
            _ => {}
        }
    }
    match offer {
        Some(scalar) => Ok(Offer { scalar, derivative }),
        None => Err(placed.complain(None, format!("there is no {}", signature(shape)))),
    }
}

/// Fails unless the user's WGSL and popfit's `rest`, which defines `fill` for `rows` rows, are a valid shader.
pub(crate) fn validate(user: &str, rest: &str, rows: usize, shape: Shape) -> Result<()> {
    let placed = Placed::new(user, rest, rows, shape);
    let module = placed.parse()?;
    placed.validate(&module).map(|_| ())
}

/// Returns the WGSL signature that a user's `model` must have, for messages.
fn signature(
    Shape {
        predictors,
        parameters,
    }: Shape,
) -> String {
    let or = if predictors == 1 { " (or x: f32)" } else { "" };
    format!("fn model(p: array<f32, {parameters}>, x: array<f32, {predictors}>) -> f32{or}")
}

impl Placed {
    /// Assembles the complete shader around the user's WGSL, and records which bytes of it are the user's.
    fn new(user: &str, rest: &str, rows: usize, shape: Shape) -> Placed {
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
        .constants();
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
        let first = source.first_line("model of the user");
        let bytes =
            |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| line.len() + 1).sum::<usize>();
        let start = bytes(&mut source.text.lines().take(first));
        let length = bytes(&mut user.lines());
        Placed {
            user: start..start + length,
            text: source.text,
        }
    }

    /// Returns whether a span begins in the user's part of the shader.
    fn holds(&self, span: Span) -> bool {
        span.to_range()
            .is_some_and(|range| self.user.contains(&range.start))
    }

    /// Returns whether popfit's own source calls a function of this name, whose place a user's would take.
    fn is_called_outside(&self, name: &str) -> bool {
        let call = format!("{name}(");
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        let calls = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            code.match_indices(&call)
                .any(|(at, _)| !code[..at].ends_with(is_letter))
        };
        [&self.text[..self.user.start], &self.text[self.user.end..]]
            .iter()
            .any(|text| text.lines().any(calls))
    }

    /// Parses the complete shader; an error names line and column of the user's text.
    fn parse(&self) -> Result<Module> {
        parse_str(&self.text).map_err(|error| {
            let spans: Vec<Span> = error.labels().map(|(span, _)| span).collect();
            let notes = error.notes().map(|note| format!("; {note}")).collect::<String>();
            if let Some(name) = error.message().strip_prefix("redefinition of ")
                && !spans.iter().all(|span| self.holds(*span))
            {
                return self.complain(self.first(spans), format!("the name {name} is taken by popfit: take another"));
            }
            let message = error.message();
            // naga's advice is for whole shaders
            if message.contains("global directive") || message.contains("extension is not enabled") {
                let message =
                    "a model enables and requires nothing, and has no diagnostic: it is part of popfit's source";
                return self.complain(self.first(spans), message);
            }
            self.complain(self.first(spans), format!("{message}{notes}"))
        })
    }

    /// Validates the parsed shader; an error names line and column of the user's text.
    fn validate(&self, module: &Module) -> Result<ModuleInfo> {
        Validator::new(ValidationFlags::all(), Capabilities::empty())
            .validate(module)
            .map_err(|error| {
                let mut spans: Vec<Span> = error.spans().map(|(span, _)| *span).collect();
                // the expression before the function that it is in
                spans.sort_by_key(|span| span.to_range().map_or(0, |range| range.len()));
                let mut message = error.as_inner().to_string();
                let mut cause = std::error::Error::source(error.as_inner());
                while let Some(error) = cause {
                    message += &format!(": {error}");
                    cause = error.source();
                }
                self.complain(self.first(spans), message)
            })
    }

    /// Returns the first span that lies in the user's text, or else the first of all; `None` if there are none.
    fn first(&self, spans: Vec<Span>) -> Option<Span> {
        spans
            .iter()
            .find(|span| self.holds(**span))
            .or(spans.first())
            .copied()
    }

    /// Makes an error that names the line and column of a span in the user's text: its end if behind, its beginning if
    /// `None`.
    fn complain(&self, span: Option<Span>, message: impl Into<String>) -> Error {
        let at = span
            .and_then(Span::to_range)
            .map_or(self.user.start, |range| range.start);
        let end = self.user.end.saturating_sub(1).max(self.user.start);
        let before = &self.text[self.user.start..at.clamp(self.user.start, end)];
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
    fn find(&self, span: Span, words: &[&str]) -> Span {
        let Some(range) = span.to_range() else {
            return span;
        };
        let text = self.text.get(range.clone()).unwrap_or_default();
        let found = words.iter().filter_map(|word| text.find(word)).min();
        found.map_or(span, |at| {
            Span::from(range.start + at..range.start + at + 1)
        })
    }

    /// Fails if the user's WGSL has a global that is no constant or private variable: a buffer, override or entry
    /// point.
    fn check_globals(&self, module: &Module) -> Result<()> {
        for (handle, global) in module.global_variables.iter() {
            let span = module.global_variables.get_span(handle);
            if self.holds(span)
                && (global.space != AddressSpace::Private || global.binding.is_some())
            {
                let name = global.name.as_deref().unwrap_or_default();
                let message = format!(
                    "`{name}` is a buffer or shared: a model has constants and var<private> alone"
                );
                return Err(self.complain(Some(span), message));
            }
        }
        for (handle, _) in module.overrides.iter() {
            let span = module.overrides.get_span(handle);
            if self.holds(span) {
                return Err(self.complain(Some(span), "a model has no override; write const"));
            }
        }
        let Some(point) = module
            .entry_points
            .iter()
            .find(|point| point.name != "main")
        else {
            return Ok(());
        };
        let message = format!(
            "`{}` is an entry point: a model has functions alone",
            point.name
        );
        let place = self.text[self.user.clone()].find(&format!("fn {}", point.name));
        let start = self.user.start + place.unwrap_or(0);
        Err(self.complain(Some(Span::from(start..start + 1)), message))
    }

    /// Fails if a function of the user's touches a buffer, by itself or through popfit's functions, or waits for other
    /// invocations.
    fn check_function(
        &self,
        module: &Module,
        info: &ModuleInfo,
        handle: Handle<Function>,
    ) -> Result<()> {
        let (span, uses) = (module.functions.get_span(handle), &info[handle]);
        let name = module.functions[handle].name.as_deref().unwrap_or_default();
        let refuse = |message: String| Err(self.complain(Some(span), message));
        if !["model", "derivative"].contains(&name) && self.is_called_outside(name) {
            return refuse(format!(
                "the name `{name}` is taken: popfit's functions call WGSL's own"
            ));
        }
        if !uses.available_stages.contains(ShaderStages::COMPUTE) {
            let why = "only fragments may discard, or take derivatives from pixel to pixel";
            let message =
                format!("`{name}`: {why}; where a model is not defined it returns nan_like(0.0)");
            return Err(self.complain(Some(self.find(span, &OF_FRAGMENTS)), message));
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
            if !uses[global].is_empty() && !self.holds(module.global_variables.get_span(global)) {
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
        shape: Shape,
    ) -> Result<bool> {
        let result = function.result.as_ref().map(|result| result.ty);
        if let [p, x] = &function.arguments[..] {
            let array = is_array(module, x.ty, shape.predictors);
            let scalar = shape.predictors == 1 && is_float(module, x.ty);
            let returns = result.is_some_and(|ty| is_float(module, ty));
            if is_array(module, p.ty, shape.parameters) && (array || scalar) && returns {
                return Ok(scalar);
            }
        }
        Err(self.complain(Some(span), format!("`model` is not {}", signature(shape))))
    }

    /// Fails unless `derivative` takes the arguments of `model` and returns one f32 per parameter.
    fn check_derivative(
        &self,
        module: &Module,
        function: &Function,
        span: Span,
        shape: Shape,
    ) -> Result<()> {
        let model = module
            .functions
            .iter()
            .find(|(_, f)| f.name.as_deref() == Some("model"))
            .map(|(_, f)| f);
        let takes = |f: &Function| {
            f.arguments
                .iter()
                .map(|argument| argument.ty)
                .collect::<Vec<_>>()
        };
        let agrees = model.is_some_and(|model| takes(model) == takes(function));
        let returns = function
            .result
            .as_ref()
            .is_some_and(|r| is_array(module, r.ty, shape.parameters));
        if agrees && returns {
            return Ok(());
        }
        let message = format!(
            "`derivative` must take what `model` takes and return array<f32, {}>",
            shape.parameters
        );
        Err(self.complain(Some(span), message))
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
