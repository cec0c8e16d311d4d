//! The bound, and the prices that lead to good assignments, by cutting planes on the Lagrangian dual.
//!
//! Prices of a second on the rows (they sum to 1) and of room give a lower bound of the window's time whatever they are: the sum over items of
//! the least priced option, less the price of all room. This bound is rigorous over the set of shapes, whatever the tolerance of
//! the solver. The best prices are found with Kelley's cutting planes: every response of the items to prices is a cut; a small linear
//! program over the cuts (variables: the prices) gives the next prices. Queries lie halfway between those and the best so far, which
//! damps the swings of the bare method. The same cuts, weighted by the program's other side, give the fractional optimum.
//!
//! This needs a solver for tens of variables and rows only, whatever the number of regions; `microlp` is small and pure Rust, where HiGHS, which
//! the design names, takes minutes of every clean build.

use super::program::{Assignment, Prices, Program};
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};

/// Cuts at most.
const ROUNDS: usize = 120;

/// Relative distance of upper and lower bound at which to stop.
const CLOSE: f64 = 2e-4;

/// Highest price of all room of a kind, in multiples of the reference time.
const DEAREST: f64 = 50.0;

/// What is minimised: rows are multiplied by their weights before the largest decides, and latency costs `haste` besides.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Aim {
    pub(crate) weights: Vec<f64>,
    pub(crate) haste: f64,
    /// Shapes that may be used.
    pub(crate) allowed: Vec<bool>,
}

impl Aim {
    /// The time itself.
    pub(crate) fn plain(program: &Program) -> Self {
        Self { weights: vec![1.0; program.rows], haste: 0.0, allowed: vec![true; program.shapes.len()] }
    }
}

/// The result of the cutting planes.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    /// No mix of the allowed shapes has a lower aim.
    pub(crate) bound_s: f64,
    pub(crate) prices: Prices,
    /// Assignments with weights that sum to 1: the fractional optimum.
    pub(crate) mix: Vec<(Assignment, f64)>,
}

struct Cuts {
    assignments: Vec<Assignment>,
}

/// Solves the relaxed program. `reference_s` is the time of any sensible plan; it scales the numbers.
pub(crate) fn relax(program: &Program, aim: &Aim, reference_s: f64) -> Relaxed {
    let rows = program.rows;
    let rooms: Vec<Option<f64>> = program.kinds.iter().map(|kind| kind.room_bytes.map(|room| room as f64)).collect();
    let total: f64 = aim.weights.iter().sum();
    let mut best = Prices { rows: vec![1.0 / total; rows], room: vec![0.0; rooms.len()], haste: aim.haste };
    let mut best_s = f64::NEG_INFINITY;
    let mut cuts = Cuts { assignments: Vec::new() };
    let mut query = best.clone();
    let mut master = Master::new(program, aim, &rooms, reference_s);
    let mut upper_s = f64::INFINITY;
    let mut at_master = true;
    for _ in 0..ROUNDS {
        let response = program.respond(&priced(&query, aim), &aim.allowed);
        let value_s = dual_value_s(&response, &query, aim, &rooms, rows);
        let improved = value_s > best_s;
        if improved {
            best_s = value_s;
            best = query.clone();
        }
        let known = cuts.assignments.iter().any(|cut| cut.chosen == response.chosen);
        if !known {
            let Some(next) = master.cut(&response) else { break };
            master = next;
            upper_s = master.upper_s(reference_s);
            cuts.assignments.push(response);
        } else if at_master {
            break;
        }
        if upper_s - best_s <= CLOSE * upper_s.abs() {
            break;
        }
        let outer = master.prices(aim.haste);
        at_master = !improved && !at_master || known;
        query = if at_master { outer } else { halfway(&best, &outer) };
    }
    let mix = mix(program, aim, &rooms, reference_s, cuts.assignments);
    Relaxed { bound_s: best_s.max(0.0), prices: priced(&best, aim), mix }
}

/// Row prices with the aim's weights in them.
fn priced(prices: &Prices, aim: &Aim) -> Prices {
    let rows = prices.rows.iter().zip(&aim.weights).map(|(price, weight)| price * weight).collect();
    Prices { rows, room: prices.room.clone(), haste: aim.haste }
}

fn halfway(a: &Prices, b: &Prices) -> Prices {
    let mean = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| 0.5 * (a + b)).collect();
    Prices { rows: mean(&a.rows, &b.rows), room: mean(&a.room, &b.room), haste: a.haste }
}

fn dual_value_s(response: &Assignment, prices: &Prices, aim: &Aim, rooms: &[Option<f64>], rows: usize) -> f64 {
    let stations: f64 = (0..rows).map(|row| response.load_s[row] * aim.weights[row] * prices.rows[row]).sum();
    let room: f64 = (0..rooms.len())
        .filter_map(|kind| rooms[kind].map(|room| prices.room[kind] * (response.room_bytes[kind] - room)))
        .sum();
    stations + room + response.fixed_s + aim.haste * response.load_s[rows - 1]
}

/// The linear program over the cuts: prices in, the highest value that all cuts admit out. Times are in units of the reference, room in
/// shares of a kind's room.
struct Master<'a> {
    aim: &'a Aim,
    rooms: &'a [Option<f64>],
    reference_s: f64,
    value: Variable,
    rows: Vec<Variable>,
    room: Vec<Option<Variable>>,
    problem: Problem,
    solved: Option<microlp::Solution>,
}

impl<'a> Master<'a> {
    fn new(program: &Program, aim: &'a Aim, rooms: &'a [Option<f64>], reference_s: f64) -> Self {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let value = problem.add_var(1.0, (-1e4, 1e4));
        let rows: Vec<Variable> = (0..program.rows).map(|_| problem.add_var(0.0, (0.0, 1.0))).collect();
        let room: Vec<Option<Variable>> =
            rooms.iter().map(|room| room.map(|_| problem.add_var(0.0, (0.0, DEAREST)))).collect();
        let mut one = LinearExpr::empty();
        rows.iter().for_each(|row| one.add(*row, 1.0));
        problem.add_constraint(one, ComparisonOp::Eq, 1.0);
        Self { aim, rooms, reference_s, value, rows, room, problem, solved: None }
    }

    /// With one cut more; `None` when the solver gives up.
    fn cut(mut self, response: &Assignment) -> Option<Self> {
        let last = self.rows.len() - 1;
        let fixed = (response.fixed_s + self.aim.haste * response.load_s[last]) / self.reference_s;
        let mut expression = LinearExpr::empty();
        expression.add(self.value, 1.0);
        for (row, variable) in self.rows.iter().enumerate() {
            expression.add(*variable, -clean(response.load_s[row] * self.aim.weights[row] / self.reference_s));
        }
        for (kind, variable) in self.room.iter().enumerate() {
            if let (Some(variable), Some(room)) = (variable, self.rooms[kind]) {
                expression.add(*variable, -clean(response.room_bytes[kind] / room.max(1.0) - 1.0));
            }
        }
        let outcome = match self.solved.take() {
            Some(solution) => solution.add_constraint(expression, ComparisonOp::Le, fixed),
            None => {
                self.problem.add_constraint(expression, ComparisonOp::Le, fixed);
                self.problem.solve()
            }
        };
        self.solved = Some(outcome.ok()?.into_solution().ok()?);
        Some(self)
    }

    fn upper_s(&self, reference_s: f64) -> f64 {
        self.solved.as_ref().map_or(f64::INFINITY, |solution| solution.objective() * reference_s)
    }

    fn prices(&self, haste: f64) -> Prices {
        let solution = self.solved.as_ref();
        let of = |variable: &Variable| solution.map_or(0.0, |solution| solution.var_value(*variable).max(0.0));
        let rows: Vec<f64> = self.rows.iter().map(of).collect();
        let sum: f64 = rows.iter().sum();
        let per_byte = |(kind, variable): (usize, &Option<Variable>)| {
            let room = self.rooms[kind].map_or(1.0, |room| room.max(1.0));
            variable.as_ref().map_or(0.0, |variable| of(variable) * self.reference_s / room)
        };
        Prices {
            rows: rows.into_iter().map(|price| price / sum.max(1e-12)).collect(),
            room: self.room.iter().enumerate().map(per_byte).collect(),
            haste,
        }
    }
}

/// Coefficients that are nothing but rounding confuse the solver.
fn clean(value: f64) -> f64 {
    if value.abs() < 1e-9 { 0.0 } else { value }
}

/// Weights of the cuts with the least aim under the rooms. Missing room is paid at the dearest price, so that there always is one.
fn mix(
    program: &Program,
    aim: &Aim,
    rooms: &[Option<f64>],
    reference_s: f64,
    cuts: Vec<Assignment>,
) -> Vec<(Assignment, f64)> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let time = problem.add_var(1.0, (0.0, f64::INFINITY));
    let last = program.rows - 1;
    let weights: Vec<Variable> = cuts
        .iter()
        .map(|cut| problem.add_var((cut.fixed_s + aim.haste * cut.load_s[last]) / reference_s, (0.0, 1.0)))
        .collect();
    let weighted = |of: &dyn Fn(&Assignment) -> f64| {
        let mut expression = LinearExpr::empty();
        cuts.iter().zip(&weights).for_each(|(cut, weight)| expression.add(*weight, clean(of(cut))));
        expression
    };
    problem.add_constraint(weighted(&|_| 1.0), ComparisonOp::Eq, 1.0);
    for row in 0..program.rows {
        let mut expression = weighted(&|cut| cut.load_s[row] * aim.weights[row] / reference_s);
        expression.add(time, -1.0);
        problem.add_constraint(expression, ComparisonOp::Le, 0.0);
    }
    for (kind, room) in rooms.iter().enumerate() {
        if let Some(room) = room {
            let missing = problem.add_var(DEAREST, (0.0, f64::INFINITY));
            let mut expression = weighted(&|cut| cut.room_bytes[kind] / room.max(1.0));
            expression.add(missing, -1.0);
            problem.add_constraint(expression, ComparisonOp::Le, 1.0);
        }
    }
    let solution = problem.solve().ok().and_then(|outcome| outcome.into_solution().ok());
    let Some(solution) = solution else {
        return cuts.into_iter().last().map(|cut| (cut, 1.0)).into_iter().collect();
    };
    let values: Vec<f64> = weights.iter().map(|weight| solution.var_value(*weight)).collect();
    cuts.into_iter().zip(values).filter(|(_, weight)| *weight > 1e-7).collect()
}
