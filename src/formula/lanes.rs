//! A graph as a list of operations over the lanes of many fits: every operation takes one number of each of
//! [`LANES`](crate::math::lanes::LANES) fits, point after point, in f32 or f64.
//!
//! This is the third form of the graph, beside the tape in f64 and WGSL. Factors that are the same at all points come
//! first (`hoist.rs`), and products are fused with the operations that read them (`fuse.rs`), but not where the value
//! jumps: rounding would decide on which side. Five built-in models are written out instead (`direct/`). Tests compare
//! both with the tape.

use pulp::{Simd, WithSimd};

use super::fuse::{Action, fused, unfused};
use super::graph::{Graph, Node, NodeId};
use super::hoist::hoisted;
use super::operation::{Elementary, run};
use crate::math::lanes::Lanes;
use crate::solver::small::{LaneBlock, LaneGrid};

/// Place to which a step writes.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The next register.
    Register,
    /// An output that no other step reads.
    Row(usize),
}

/// One operation, the registers of its operands, and the place of its result. Leaves read no register.
#[derive(Clone, Copy, Debug)]
struct Step {
    action: Action,
    a: usize,
    b: usize,
    c: usize,
    place: Place,
    register: usize,
}

/// A model and its derivatives, compiled.
#[derive(Clone, Debug)]
pub struct LaneTape {
    steps: Vec<Step>,
    /// Number of the first steps, which depend on no predictor and are computed with the first point.
    once: usize,
    /// Number of registers.
    registers: usize,
    /// Outputs that are copied from a register: (register, row).
    copies: Vec<(usize, usize)>,
}

impl LaneTape {
    /// Compiles the nodes that `outputs` depend on into a list of steps, to be run for several fits side by side.
    pub fn new(graph: &Graph, outputs: &[NodeId]) -> LaneTape {
        // where a model jumps, its conditions are to have the bits of the tape
        let jumps = graph.has_jumps(outputs[0]);
        let (graph, outputs) = if jumps {
            (graph.clone(), outputs.to_vec())
        } else {
            hoisted(graph, outputs)
        };
        let count = graph.nodes.len();
        let varies = graph.varying();
        let (actions, needed) = if jumps {
            unfused(&graph, &outputs)
        } else {
            fused(&graph, &outputs, &varies)
        };
        let of = |varying: bool| {
            (0..count)
                .filter(|&k| needed[k] && varies[k] == varying)
                .collect::<Vec<_>>()
        };
        let (mut order, each) = (of(false), of(true));
        let once = order.len();
        order.extend(each);
        let mut read = vec![false; count];
        order
            .iter()
            .flat_map(|&k| actions[k].operands())
            .for_each(|id| read[id.0] = true);
        let (mut register, mut registers) = (vec![0; count], 0);
        let mut steps = Vec::with_capacity(order.len());
        for &k in &order {
            let mut rows = (0..outputs.len()).filter(|row| outputs[*row].0 == k);
            let place = match (rows.next(), rows.next()) {
                (Some(row), None) if varies[k] && !read[k] => Place::Row(row),
                _ => Place::Register,
            };
            let mut operands = actions[k].operands().map(|id| register[id.0]);
            let mut next = || operands.next().unwrap_or(0);
            steps.push(Step {
                action: actions[k],
                a: next(),
                b: next(),
                c: next(),
                place,
                register: registers,
            });
            register[k] = registers;
            registers += usize::from(matches!(place, Place::Register));
        }
        let written = |row: usize| {
            steps
                .iter()
                .any(|step| matches!(step.place, Place::Row(r) if r == row))
        };
        let copies = (0..outputs.len())
            .filter(|&row| !written(row))
            .map(|row| (register[outputs[row].0], row));
        LaneTape {
            copies: copies.collect(),
            steps,
            once,
            registers,
        }
    }

    /// Computes the outputs at the points of a block, for several fits side by side, into the block's rows.
    pub fn evaluate<R: Elementary>(&self, block: LaneBlock<'_, R>) {
        pulp::Arch::new().dispatch(Evaluation { tape: self, block });
    }
}

/// An evaluation of a tape for a block.
struct Evaluation<'a, R> {
    tape: &'a LaneTape,
    block: LaneBlock<'a, R>,
}

impl<R: Elementary> Evaluation<'_, R> {
    /// Runs the steps that depend on no predictor, once for all points of a block, into registers.
    #[inline(always)]
    fn prepare(&mut self) {
        let LaneBlock {
            parameters,
            registers,
            ..
        } = &mut self.block;
        registers.resize(self.tape.registers, Lanes::splat(R::NAN));
        for step in &self.tape.steps[..self.tape.once] {
            let (before, rest) = registers.split_at_mut(step.register);
            let out = &mut rest[0].0;
            match step.action {
                Action::Node(Node::Parameter(p)) => *out = parameters[p].0,
                Action::Node(Node::Number(bits)) => *out = [R::of(f64::from_bits(bits)); _],
                Action::Node(node) => run(node, &before[step.a].0, &before[step.b].0, out),
                // fused steps have predictors
                Action::MultiplyAdd(..) | Action::MultiplyMultiply(..) | Action::Beyond(..) => {}
            }
        }
    }

    /// Runs the steps that depend on predictors at one point, and writes outputs to rows number `place` of the block.
    #[inline(always)]
    fn point<S: Simd>(&mut self, simd: S, place: usize, point: usize) {
        let LaneBlock {
            of_points,
            grid,
            registers,
            y,
            rows,
            stride,
            ..
        } = &mut self.block;
        let rows = &mut rows[place * *stride..(place + 1) * *stride];
        for step in &self.tape.steps[self.tape.once..] {
            let (before, rest) = registers.split_at_mut(step.register);
            let out = match step.place {
                Place::Register => &mut rest[0].0,
                Place::Row(row) => &mut rows[row].0,
            };
            let place = |d: usize| d * *of_points + point;
            match (step.action, &grid) {
                (Action::Node(Node::Predictor(d)), LaneGrid::Shared(x)) => *out = [x[place(d)]; _],
                (Action::Node(Node::Predictor(d)), LaneGrid::Own(x)) => *out = x[place(d)].0,
                (Action::Beyond(d, _), LaneGrid::Shared(x)) => {
                    let x = R::splat(simd, x[place(d)]);
                    let a = R::vectors::<S>(&before[step.a].0);
                    for (out, a) in R::vectors_mut::<S>(out).iter_mut().zip(a) {
                        *out = R::minus(simd, x, *a);
                    }
                }
                (Action::Beyond(d, _), LaneGrid::Own(x)) => {
                    let (x, a) = (
                        R::vectors::<S>(&x[place(d)].0),
                        R::vectors::<S>(&before[step.a].0),
                    );
                    for (out, (x, a)) in R::vectors_mut::<S>(out).iter_mut().zip(x.iter().zip(a)) {
                        *out = R::minus(simd, *x, *a);
                    }
                }
                (Action::Node(node), _) => {
                    let (a, b) = (&before[step.a].0, &before[step.b].0);
                    let pairs = R::vectors::<S>(a).iter().zip(R::vectors::<S>(b));
                    let each = R::vectors_mut::<S>(out).iter_mut().zip(pairs);
                    match node {
                        Node::Add(..) => {
                            for (out, (a, b)) in each {
                                *out = R::plus(simd, *a, *b);
                            }
                        }
                        Node::Subtract(..) => {
                            for (out, (a, b)) in each {
                                *out = R::minus(simd, *a, *b);
                            }
                        }
                        Node::Multiply(..) => {
                            for (out, (a, b)) in each {
                                *out = R::multiply(simd, *a, *b);
                            }
                        }
                        _ => run(node, a, b, out),
                    }
                }
                (Action::MultiplyMultiply(..) | Action::MultiplyAdd(..), _) => {
                    let [a, b, c] =
                        [step.a, step.b, step.c].map(|id| R::vectors::<S>(&before[id].0));
                    let each = R::vectors_mut::<S>(out)
                        .iter_mut()
                        .zip(a.iter().zip(b.iter().zip(c)));
                    if matches!(step.action, Action::MultiplyAdd(..)) {
                        for (out, (a, (b, c))) in each {
                            *out = R::multiply_add(simd, *a, *b, *c);
                        }
                    } else {
                        for (out, (a, (b, c))) in each {
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
            let residual = R::vectors_mut::<S>(&mut rows[0].0).iter_mut();
            residual
                .zip(R::vectors::<S>(&y.0))
                .for_each(|(value, y)| *value = R::minus(simd, *y, *value));
        }
    }
}

impl<R: Elementary> WithSimd for Evaluation<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if self.block.points.start == 0 {
            self.prepare();
        }
        for (place, point) in self.block.points.clone().enumerate() {
            self.point(simd, place, point);
        }
    }
}
