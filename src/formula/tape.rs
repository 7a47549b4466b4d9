//! A graph as a list of operations over blocks of points, in f64.
//!
//! What depends on parameters alone is computed once a call; the rest runs over blocks of [`BLOCK`] points, one
//! register of a block a node, inside a `pulp` dispatch so that the loops become vector code. No product is fused with
//! a sum: the bits are the same on every processor whose library functions agree.

use pulp::{Simd, WithSimd};

use super::graph::{Graph, Node, NodeId};
use super::operation::run;

/// Points that one operation takes at a time.
const BLOCK: usize = 64;

/// One operation on registers; leaves read nothing.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: Node,
    a: usize,
    b: usize,
}

/// Compiled expressions.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Steps in their order; step k writes register k.
    steps: Vec<Step>,
    /// The first steps depend on no predictor: computed once a call.
    once: usize,
    /// The register of each output.
    outputs: Vec<usize>,
}

impl Tape {
    /// Only what `outputs` need becomes steps.
    pub fn new(graph: &Graph, outputs: &[NodeId]) -> Tape {
        let count = graph.nodes.len();
        let needed = graph.needed(outputs);
        let varies = graph.varying();
        let of = |varying: bool| (0..count).filter(|&k| needed[k] && varies[k] == varying).collect::<Vec<_>>();
        let (mut order, each) = (of(false), of(true));
        let once = order.len();
        order.extend(each);
        let mut register = vec![0; count];
        order.iter().enumerate().for_each(|(place, &k)| register[k] = place);
        let step = |&k: &usize| {
            let node = graph.nodes[k];
            let mut operands = node.operands().map(|id| register[id.0]);
            let a = operands.next().unwrap_or(0);
            Step { node, a, b: operands.next().unwrap_or(a) }
        };
        let steps = order.iter().map(step).collect();
        Tape { steps, once, outputs: outputs.iter().map(|id| register[id.0]).collect() }
    }

    /// Returns how many operations there are.
    #[cfg(test)]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Evaluates all outputs at `points` points: `predictors` (predictors, points), `output` (outputs, points).
    pub fn evaluate(&self, points: usize, predictors: &[f64], parameters: &[f64], output: &mut [f64]) {
        pulp::Arch::new().dispatch(Evaluation { tape: self, points, predictors, parameters, output });
    }
}

struct Evaluation<'a> {
    tape: &'a Tape,
    points: usize,
    predictors: &'a [f64],
    parameters: &'a [f64],
    output: &'a mut [f64],
}

impl Evaluation<'_> {
    /// The steps without predictors, each over its whole register.
    #[inline(always)]
    fn prepare(&self, registers: &mut [f64], width: usize) {
        for (k, step) in self.tape.steps[..self.tape.once].iter().enumerate() {
            let value = match step.node {
                Node::Parameter(p) => self.parameters[p],
                node => node.apply(registers[step.a * width], registers[step.b * width]),
            };
            registers[k * width..][..width].fill(value);
        }
    }

    /// The other steps for `count` points from `start`.
    #[inline(always)]
    fn block(&self, registers: &mut [f64], width: usize, (start, count): (usize, usize)) {
        for (k, step) in self.tape.steps.iter().enumerate().skip(self.tape.once) {
            let (before, rest) = registers.split_at_mut(k * width);
            let out = &mut rest[..count];
            match step.node {
                Node::Predictor(d) => out.copy_from_slice(&self.predictors[d * self.points + start..][..count]),
                node => run(node, &before[step.a * width..][..count], &before[step.b * width..][..count], out),
            }
        }
    }
}

impl WithSimd for Evaluation<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = BLOCK.min(self.points);
        let mut registers = vec![0.0; width * self.tape.steps.len()];
        if width == 0 {
            return;
        }
        self.prepare(&mut registers, width);
        for start in (0..self.points).step_by(BLOCK) {
            let count = BLOCK.min(self.points - start);
            self.block(&mut registers, width, (start, count));
            for (row, register) in self.output.chunks_exact_mut(self.points).zip(&self.tape.outputs) {
                row[start..start + count].copy_from_slice(&registers[*register * width..][..count]);
            }
        }
    }
}
