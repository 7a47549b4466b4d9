//! Compilation of a graph to a list of operations over the lanes of many fits: every operation takes one number from
//! each of [`LANES`](crate::math::lanes::LANES) fits, point after point, in f32 or f64.
//!
//! This is the third form of the graph, beside the tape in f64 and WGSL. Factors that are the same at all points come
//! first (`hoist.rs`), and products are fused with the operations that read them (`fuse.rs`). Neither is done where the
//! value jumps, because rounding would decide on which side. Five built-in models are written out instead (`direct/`).
//! Tests compare both with the tape.

use pulp::{Simd, WithSimd};

use super::fuse::{LaneOperation, fuse_products, keep_operations};
use super::graph::{Graph, Node, NodeId};
use super::hoist::hoist_constant_factors;
use super::operation::{Elementary, apply_operation};
use crate::math::lanes::Lanes;
use crate::solver::small::{LaneBlock, LaneGrid};

/// Destination of a step's result.
#[derive(Clone, Copy, Debug)]
enum Destination {
    /// The next register.
    Register,
    /// An output that no other step reads.
    Row(usize),
}

/// Operation with the registers of its operands and the destination of its result. Leaves read no register.
#[derive(Clone, Copy, Debug)]
struct LaneStep {
    operation: LaneOperation,
    a: usize,
    b: usize,
    c: usize,
    destination: Destination,
    register: usize,
}

/// List of operations that computes a model and its derivatives in lanes.
#[derive(Clone, Debug)]
pub struct LaneTape {
    steps: Vec<LaneStep>,
    /// Number of the first steps, which depend on no predictor and are computed with the first point.
    constant_steps: usize,
    register_count: usize,
    /// Outputs that are copied from a register: (register, row).
    copies: Vec<(usize, usize)>,
}

impl LaneTape {
    /// Compiles the nodes that `outputs` depend on into a list of steps, to be run for several fits side by side.
    pub fn new(graph: &Graph, outputs: &[NodeId]) -> LaneTape {
        // 1. Rearrange and fuse products. Where a model jumps, its conditions have to have the bits of the tape.
        let has_jumps = graph.has_jumps(outputs[0]);
        let (graph, outputs) = if has_jumps {
            (graph.clone(), outputs.to_vec())
        } else {
            hoist_constant_factors(graph, outputs)
        };
        let count = graph.nodes.len();
        let varies = graph.find_varying();
        let (operations, needed) = if has_jumps {
            keep_operations(&graph, &outputs)
        } else {
            fuse_products(&graph, &outputs, &varies)
        };
        // 2. Order the nodes: first those that are the same at all points.
        let mut order: Vec<usize> = (0..count).filter(|&k| needed[k] && !varies[k]).collect();
        let constant_steps = order.len();
        order.extend((0..count).filter(|&k| needed[k] && varies[k]));
        // 3. Find the nodes that others read. An output that nobody reads is written to its row directly.
        let mut is_read = vec![false; count];
        order
            .iter()
            .flat_map(|&k| operations[k].operands())
            .for_each(|id| is_read[id.0] = true);
        // 4. Make the steps and assign registers.
        let mut registers = vec![0; count];
        let mut register_count = 0;
        let mut steps = Vec::with_capacity(order.len());
        for &k in &order {
            let mut rows = (0..outputs.len()).filter(|row| outputs[*row].0 == k);
            let destination = match (rows.next(), rows.next()) {
                (Some(row), None) if varies[k] && !is_read[k] => Destination::Row(row),
                _ => Destination::Register,
            };
            let mut operands = operations[k].operands().map(|id| registers[id.0]);
            let mut next_operand = || operands.next().unwrap_or(0);
            steps.push(LaneStep {
                operation: operations[k],
                a: next_operand(),
                b: next_operand(),
                c: next_operand(),
                destination,
                register: register_count,
            });
            registers[k] = register_count;
            register_count += usize::from(matches!(destination, Destination::Register));
        }
        // 5. List the rows to which no step writes: they are copied from registers.
        let is_written = |row: usize| {
            steps
                .iter()
                .any(|step| matches!(step.destination, Destination::Row(r) if r == row))
        };
        let copies = (0..outputs.len())
            .filter(|&row| !is_written(row))
            .map(|row| (registers[outputs[row].0], row));
        LaneTape {
            copies: copies.collect(),
            steps,
            constant_steps,
            register_count,
        }
    }

    /// Computes the outputs at the points of a block, for several fits side by side, into the block's rows.
    pub fn evaluate<R: Elementary>(&self, block: LaneBlock<'_, R>) {
        pulp::Arch::new().dispatch(LaneEvaluation { tape: self, block });
    }
}

/// Evaluation of a tape for a block.
struct LaneEvaluation<'a, R> {
    tape: &'a LaneTape,
    block: LaneBlock<'a, R>,
}

impl<R: Elementary> LaneEvaluation<'_, R> {
    /// Runs the steps that depend on no predictor, once for all points of a block, into registers.
    #[inline(always)]
    fn compute_constant_steps(&mut self) {
        let LaneBlock {
            parameters,
            registers,
            ..
        } = &mut self.block;
        registers.resize(self.tape.register_count, Lanes::splat(R::NAN));
        for step in &self.tape.steps[..self.tape.constant_steps] {
            let (earlier_registers, later_registers) = registers.split_at_mut(step.register);
            let out = &mut later_registers[0].0;
            match step.operation {
                LaneOperation::Node(Node::Parameter(p)) => *out = parameters[p].0,
                LaneOperation::Node(Node::Number(bits)) => *out = [R::of(f64::from_bits(bits)); _],
                LaneOperation::Node(node) => apply_operation(
                    node,
                    &earlier_registers[step.a].0,
                    &earlier_registers[step.b].0,
                    out,
                ),
                // Fused steps depend on predictors.
                LaneOperation::MultiplyAdd(..)
                | LaneOperation::MultiplyMultiply(..)
                | LaneOperation::Beyond(..) => {}
            }
        }
    }

    /// Runs the steps that depend on predictors at one point, and writes the outputs to the rows of the block's point
    /// number `block_point`.
    #[inline(always)]
    fn compute_point<S: Simd>(&mut self, simd: S, block_point: usize, point: usize) {
        let LaneBlock {
            of_points,
            grid,
            registers,
            y,
            rows,
            stride,
            ..
        } = &mut self.block;
        let rows = &mut rows[block_point * *stride..(block_point + 1) * *stride];
        for step in &self.tape.steps[self.tape.constant_steps..] {
            let (earlier_registers, later_registers) = registers.split_at_mut(step.register);
            let out = match step.destination {
                Destination::Register => &mut later_registers[0].0,
                Destination::Row(row) => &mut rows[row].0,
            };
            let x_index = |d: usize| d * *of_points + point;
            match (step.operation, &grid) {
                (LaneOperation::Node(Node::Predictor(d)), LaneGrid::Shared(x)) => {
                    *out = [x[x_index(d)]; _]
                }
                (LaneOperation::Node(Node::Predictor(d)), LaneGrid::Own(x)) => {
                    *out = x[x_index(d)].0
                }
                (LaneOperation::Beyond(d, _), LaneGrid::Shared(x)) => {
                    let x = R::splat(simd, x[x_index(d)]);
                    let a = R::vectors::<S>(&earlier_registers[step.a].0);
                    for (out, a) in R::vectors_mut::<S>(out).iter_mut().zip(a) {
                        *out = R::minus(simd, x, *a);
                    }
                }
                (LaneOperation::Beyond(d, _), LaneGrid::Own(x)) => {
                    let x = R::vectors::<S>(&x[x_index(d)].0);
                    let a = R::vectors::<S>(&earlier_registers[step.a].0);
                    for (out, (x, a)) in R::vectors_mut::<S>(out).iter_mut().zip(x.iter().zip(a)) {
                        *out = R::minus(simd, *x, *a);
                    }
                }
                (LaneOperation::Node(node), _) => {
                    let a = &earlier_registers[step.a].0;
                    let b = &earlier_registers[step.b].0;
                    let operands = R::vectors::<S>(a).iter().zip(R::vectors::<S>(b));
                    let vectors = R::vectors_mut::<S>(out).iter_mut().zip(operands);
                    match node {
                        Node::Add(..) => {
                            for (out, (a, b)) in vectors {
                                *out = R::plus(simd, *a, *b);
                            }
                        }
                        Node::Subtract(..) => {
                            for (out, (a, b)) in vectors {
                                *out = R::minus(simd, *a, *b);
                            }
                        }
                        Node::Multiply(..) => {
                            for (out, (a, b)) in vectors {
                                *out = R::multiply(simd, *a, *b);
                            }
                        }
                        _ => apply_operation(node, a, b, out),
                    }
                }
                (LaneOperation::MultiplyMultiply(..) | LaneOperation::MultiplyAdd(..), _) => {
                    let [a, b, c] = [step.a, step.b, step.c]
                        .map(|id| R::vectors::<S>(&earlier_registers[id].0));
                    let vectors = R::vectors_mut::<S>(out)
                        .iter_mut()
                        .zip(a.iter().zip(b.iter().zip(c)));
                    if matches!(step.operation, LaneOperation::MultiplyAdd(..)) {
                        for (out, (a, (b, c))) in vectors {
                            *out = R::multiply_add(simd, *a, *b, *c);
                        }
                    } else {
                        for (out, (a, (b, c))) in vectors {
                            *out = R::multiply(simd, R::multiply(simd, *a, *b), *c);
                        }
                    }
                }
            }
        }
        self.tape
            .copies
            .iter()
            .for_each(|&(register, row)| rows[row] = registers[register]);
        if let Some(y) = y.get(point) {
            let values = R::vectors_mut::<S>(&mut rows[0].0).iter_mut();
            values
                .zip(R::vectors::<S>(&y.0))
                .for_each(|(value, y)| *value = R::minus(simd, *y, *value));
        }
    }
}

impl<R: Elementary> WithSimd for LaneEvaluation<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if self.block.points.start == 0 {
            self.compute_constant_steps();
        }
        for (block_point, point) in self.block.points.clone().enumerate() {
            self.compute_point(simd, block_point, point);
        }
    }
}
