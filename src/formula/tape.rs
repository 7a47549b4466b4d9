//! A graph as a list of operations over blocks of points, in f64.
//!
//! Nodes that depend on parameters alone are computed once per call. The others run over blocks of [`BLOCK`] points,
//! with one register per node, inside a `pulp` dispatch so that the loops become vector code. No product is fused with
//! a sum: the bits are the same on every processor whose library functions agree.

use pulp::{Simd, WithSimd};

use super::graph::{Graph, Node, NodeId};
use super::operation::run;

/// Number of points that one operation takes at a time.
const BLOCK: usize = 64;

/// One operation and the registers of its operands. Leaves read none.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: Node,
    a: usize,
    b: usize,
}

/// Compiled expressions.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Steps in their order. Step k writes register k.
    steps: Vec<Step>,
    /// Number of the first steps, which depend on no predictor and are computed once per call.
    once: usize,
    /// Register of each output.
    outputs: Vec<usize>,
}

impl Tape {
    /// Compiles the nodes that `outputs` depend on into a list of operations in f64, those without predictors first.
    pub fn new(graph: &Graph, outputs: &[NodeId]) -> Tape {
        let count = graph.nodes.len();
        let needed = graph.needed(outputs);
        let varies = graph.varying();
        let of = |varying: bool| {
            (0..count)
                .filter(|&k| needed[k] && varies[k] == varying)
                .collect::<Vec<_>>()
        };
        let (mut order, each) = (of(false), of(true));
        let once = order.len();
        order.extend(each);
        let mut register = vec![0; count];
        order
            .iter()
            .enumerate()
            .for_each(|(place, &k)| register[k] = place);
        let steps = order.iter().map(|&k| {
            let mut operands = graph.nodes[k].operands().map(|id| register[id.0]);
            let a = operands.next().unwrap_or(0);
            Step {
                node: graph.nodes[k],
                a,
                b: operands.next().unwrap_or(a),
            }
        });
        Tape {
            steps: steps.collect(),
            once,
            outputs: outputs.iter().map(|id| register[id.0]).collect(),
        }
    }

    /// Returns the number of operations, numbers and leaves included.
    #[cfg(test)]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Computes all outputs in f64 from `predictors` (predictors, points) into `output` (outputs, points), of which the
    /// caller ensures the lengths.
    pub fn evaluate(
        &self,
        points: usize,
        predictors: &[f64],
        parameters: &[f64],
        output: &mut [f64],
    ) {
        pulp::Arch::new().dispatch(Evaluation {
            tape: self,
            points,
            predictors,
            parameters,
            output,
        });
    }
}

/// An evaluation of a tape at some points.
struct Evaluation<'a> {
    tape: &'a Tape,
    points: usize,
    predictors: &'a [f64],
    parameters: &'a [f64],
    output: &'a mut [f64],
}

impl Evaluation<'_> {
    /// Computes the nodes that depend on no predictor, and fills the `width` places of their registers with each value.
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

    /// Computes the nodes that depend on a predictor, for `count` points from `start`, into their registers.
    #[inline(always)]
    fn block(&self, registers: &mut [f64], width: usize, start: usize, count: usize) {
        for (k, step) in self.tape.steps.iter().enumerate().skip(self.tape.once) {
            let (before, rest) = registers.split_at_mut(k * width);
            let out = &mut rest[..count];
            match step.node {
                Node::Predictor(d) => {
                    out.copy_from_slice(&self.predictors[d * self.points + start..][..count])
                }
                node => run(
                    node,
                    &before[step.a * width..][..count],
                    &before[step.b * width..][..count],
                    out,
                ),
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
            self.block(&mut registers, width, start, count);
            for (row, register) in self
                .output
                .chunks_exact_mut(self.points)
                .zip(&self.tape.outputs)
            {
                row[start..start + count].copy_from_slice(&registers[*register * width..][..count]);
            }
        }
    }
}
