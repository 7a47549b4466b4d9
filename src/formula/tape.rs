//! Compilation of a graph to a list of operations over blocks of points, in f64.
//!
//! Nodes that depend on parameters alone are computed once per call. The others run over blocks of [`POINTS_PER_BLOCK`]
//! points, with one register per node, inside a `pulp` dispatch so that the loops become vector code. No product is
//! fused with a sum: the bits are the same on every processor whose library functions agree.

use pulp::{Simd, WithSimd};

use super::graph::{Graph, Node, NodeId};
use super::operation::apply_operation;

/// Number of points that one operation takes at a time.
const POINTS_PER_BLOCK: usize = 64;

/// Operation with the registers of its operands. Leaves read none.
#[derive(Clone, Copy, Debug)]
struct TapeStep {
    node: Node,
    a: usize,
    b: usize,
}

/// List of operations that computes expressions at many points.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Steps in their order. Step k writes register k.
    steps: Vec<TapeStep>,
    /// Number of the first steps, which depend on no predictor and are computed once per call.
    constant_steps: usize,
    /// Register of each output.
    outputs: Vec<usize>,
}

impl Tape {
    /// Compiles the nodes that `outputs` depend on into a list of operations in f64, those without predictors first.
    pub fn new(graph: &Graph, outputs: &[NodeId]) -> Tape {
        let count = graph.nodes.len();
        let needed = graph.find_needed(outputs);
        let varies = graph.find_varying();
        // 1. Order the nodes: first those that are the same at all points.
        let mut order: Vec<usize> = (0..count).filter(|&k| needed[k] && !varies[k]).collect();
        let constant_steps = order.len();
        order.extend((0..count).filter(|&k| needed[k] && varies[k]));
        // 2. Assign a register to each node.
        let mut registers = vec![0; count];
        for (register, &k) in order.iter().enumerate() {
            registers[k] = register;
        }
        // 3. Make the steps.
        let steps = order.iter().map(|&k| {
            let mut operands = graph.nodes[k].operands().map(|id| registers[id.0]);
            let a = operands.next().unwrap_or(0);
            TapeStep {
                node: graph.nodes[k],
                a,
                b: operands.next().unwrap_or(a),
            }
        });
        Tape {
            steps: steps.collect(),
            constant_steps,
            outputs: outputs.iter().map(|id| registers[id.0]).collect(),
        }
    }

    /// Returns the number of operations, numbers and leaves included.
    #[cfg(test)]
    pub fn count_steps(&self) -> usize {
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
        pulp::Arch::new().dispatch(TapeEvaluation {
            tape: self,
            points,
            predictors,
            parameters,
            output,
        });
    }
}

/// Evaluation of a tape at some points.
struct TapeEvaluation<'a> {
    tape: &'a Tape,
    points: usize,
    predictors: &'a [f64],
    parameters: &'a [f64],
    output: &'a mut [f64],
}

impl TapeEvaluation<'_> {
    /// Computes the nodes that depend on no predictor, and fills the `width` places of their registers with each value.
    #[inline(always)]
    fn compute_constant_steps(&self, registers: &mut [f64], width: usize) {
        for (k, step) in self.tape.steps[..self.tape.constant_steps]
            .iter()
            .enumerate()
        {
            let value = match step.node {
                Node::Parameter(p) => self.parameters[p],
                node => node.apply(registers[step.a * width], registers[step.b * width]),
            };
            registers[k * width..][..width].fill(value);
        }
    }

    /// Computes the nodes that depend on a predictor, for `count` points from `start`, into their registers.
    #[inline(always)]
    fn compute_block(&self, registers: &mut [f64], width: usize, start: usize, count: usize) {
        for (k, step) in self
            .tape
            .steps
            .iter()
            .enumerate()
            .skip(self.tape.constant_steps)
        {
            let (earlier_registers, later_registers) = registers.split_at_mut(k * width);
            let out = &mut later_registers[..count];
            match step.node {
                Node::Predictor(d) => {
                    out.copy_from_slice(&self.predictors[d * self.points + start..][..count])
                }
                node => apply_operation(
                    node,
                    &earlier_registers[step.a * width..][..count],
                    &earlier_registers[step.b * width..][..count],
                    out,
                ),
            }
        }
    }
}

impl WithSimd for TapeEvaluation<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = POINTS_PER_BLOCK.min(self.points);
        let mut registers = vec![0.0; width * self.tape.steps.len()];
        if width == 0 {
            return;
        }
        self.compute_constant_steps(&mut registers, width);
        for start in (0..self.points).step_by(POINTS_PER_BLOCK) {
            let count = POINTS_PER_BLOCK.min(self.points - start);
            self.compute_block(&mut registers, width, start, count);
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
