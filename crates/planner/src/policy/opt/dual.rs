//! The bound, and the prices that lead to good assignments, by cutting planes on the Lagrangian dual.
//!
//! Prices of a second on the rows (they sum to 1 in each period) and of room give a lower bound of the run's time whatever they are: the sum over
//! items of the least priced path, less the price of all room. This bound is rigorous over the set of shapes, whatever the tolerance of
//! the solver. The best prices are found with Kelley's cutting planes: every response of the items to prices is a cut (several, when there are many
//! prices: one for each group of items); a small linear program over the cuts, whose variables are the prices, gives the next prices. Queries
//! lie halfway between those and the best so far, which damps the swings of the bare method. The same cuts, weighted by the program's other
//! side, give the fractional optimum.
//!
//! This needs a solver for tens of variables and rows only, whatever the number of regions; `microlp` is small and pure Rust, where HiGHS, which
//! the design names, takes minutes of every clean build.

use super::budget::Budget;
use super::paths::Prices;
use super::program::{Assignment, Program};
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};

/// Responses at most, for the bound and for other aims.
const ROUNDS: (usize, usize) = (150, 30);

/// Relative distance of upper and lower bound at which to stop.
const CLOSE: f64 = 2e-4;

/// Highest price of all room of a kind in a window, in multiples of the reference time.
const DEAREST: f64 = 50.0;

/// Groups of items with cuts of their own, where there is more than one period.
const GROUPS: usize = 8;

/// What is minimised: rows are multiplied by their weights before the largest decides, and latency costs `haste` besides.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Aim {
    /// For the rows of a period, the same in all of them.
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

    /// Seconds that an assignment takes by the aim.
    pub(crate) fn seconds(&self, program: &Program, sum: &Assignment) -> f64 {
        let period = |load_s: &[f64]| {
            let slowest = load_s.iter().zip(&self.weights).map(|(load, weight)| load * weight).fold(0.0, f64::max);
            slowest + self.haste * load_s[program.rows - 1]
        };
        sum.load_s.chunks(program.rows).map(period).sum::<f64>() + sum.fixed_s
    }

    /// Seconds that do not depend on prices.
    fn outright_s(&self, program: &Program, sum: &Assignment) -> f64 {
        let latency: f64 = sum.load_s.chunks(program.rows).map(|load_s| load_s[program.rows - 1]).sum();
        sum.fixed_s + self.haste * latency
    }
}

/// The result of the cutting planes.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    /// No mix of the allowed shapes has a lower aim.
    pub(crate) bound_s: f64,
    /// With the aim's weights in them.
    pub(crate) prices: Prices,
    /// Responses, each with its weight in every group of items: the fractional optimum.
    pub(crate) mix: Vec<(Assignment, Vec<f64>)>,
    pub(crate) groups: usize,
    /// The prices that the responses of the mix answer, then the best; without the aim's weights.
    queries: Vec<Prices>,
}

/// The sums of one response, by group of items.
struct Plane {
    query: Prices,
    response: Assignment,
    groups: Vec<Assignment>,
}

/// The parts of the relaxation that do not change.
struct Setting<'a> {
    program: &'a Program,
    aim: &'a Aim,
    reference_s: f64,
    groups: usize,
    /// Bytes on each server of each kind in each window, where bounded.
    capacities: Vec<Option<f64>>,
}

/// The time of a plan that looks at no station: a scale.
pub(crate) fn reference_s(program: &Program) -> f64 {
    let aim = Aim::plain(program);
    let prices = Prices {
        rows: vec![1.0 / program.rows as f64; program.rows * program.periods()],
        capacity: vec![0.0; program.kinds.len() * program.windows],
        haste: 0.0,
    };
    aim.seconds(program, &program.respond(&prices, &aim.allowed)).max(1e-9)
}

/// Queries of regions beyond those of their groups' optimum, for the bound.
pub(crate) const BOUND_ROUNDS: usize = 30;

/// Solves the relaxed program. `reference_s` is the time of any sensible plan; it scales the numbers. `hint` are prices to start from.
pub(crate) fn relax(program: &Program, aim: &Aim, reference_s: f64, hint: Option<&Prices>, budget: &Budget) -> Relaxed {
    let setting = Setting::new(program, aim, reference_s);
    let rounds = if hint.is_none() { ROUNDS.0 } else { ROUNDS.1 };
    let start = setting.start(hint);
    setting.cutting_planes(vec![start], rounds, budget)
}

/// The relaxed program from that of another program with the same shapes, whose items are groups of this one's: the items answer
/// the prices that the groups' optimum is mixed from, and no more than `rounds` others.
pub(crate) fn refine(
    program: &Program,
    aim: &Aim,
    reference_s: f64,
    rough: &Relaxed,
    rounds: usize,
    budget: &Budget,
) -> Relaxed {
    let setting = Setting::new(program, aim, reference_s);
    setting.cutting_planes(rough.queries.clone(), rough.queries.len() + rounds, budget)
}

fn halfway(a: &Prices, b: &Prices) -> Prices {
    let mean = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| 0.5 * (a + b)).collect();
    Prices { rows: mean(&a.rows, &b.rows), capacity: mean(&a.capacity, &b.capacity), haste: a.haste }
}

impl<'a> Setting<'a> {
    fn new(program: &'a Program, aim: &'a Aim, reference_s: f64) -> Self {
        let of_window = program.kinds.iter().map(|kind| kind.room_bytes.map(|capacity| capacity as f64));
        let capacities: Vec<Option<f64>> = (0..program.windows).flat_map(|_| of_window.clone()).collect();
        let groups = if program.periods() == 1 { 1 } else { GROUPS.min(program.items.len().max(1)) };
        Setting { program, aim, reference_s, groups, capacities }
    }

    /// Asks for answers to `first`, which is not empty, and then to the prices that promise most.
    fn cutting_planes(&self, first: Vec<Prices>, rounds: usize, budget: &Budget) -> Relaxed {
        let mut best = first[0].clone();
        let (mut best_s, mut upper_s) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut planes: Vec<Plane> = Vec::new();
        let mut given = first.into_iter();
        let mut query = given.next().expect("there are prices to begin with");
        let mut master = Master::new(self);
        let mut at_master = true;
        for _ in 0..rounds {
            let response = self.program.respond(&self.weighted(&query), &self.aim.allowed);
            let value_s = self.value_s(&response, &query);
            let improved = value_s > best_s;
            if improved {
                (best_s, best) = (value_s, query.clone());
            }
            let known = planes.iter().any(|plane| plane.response.chosen == response.chosen);
            if known && at_master && given.len() == 0 {
                break;
            }
            if !known {
                let plane = self.plane(query, response);
                let next = master.plane(self, &plane);
                planes.push(plane);
                let Some(next) = next else { break };
                master = next;
                upper_s = master.upper_s(self);
            }
            if upper_s - best_s <= CLOSE * upper_s.abs() || budget.is_spent() {
                break;
            }
            if let Some(next) = given.next() {
                query = next;
                continue;
            }
            let outer = master.prices(self);
            at_master = known || !(improved || at_master);
            query = if at_master { outer } else { halfway(&best, &outer) };
        }
        let prices = self.weighted(&best);
        let (mut queries, mix): (Vec<Prices>, _) =
            self.mix(planes).into_iter().map(|(plane, weights)| (plane.query, (plane.response, weights))).unzip();
        queries.push(best);
        Relaxed { bound_s: best_s.max(0.0), prices, mix, groups: self.groups, queries }
    }

    /// Prices to begin with: given ones without their weights, or equal ones.
    fn start(&self, hint: Option<&Prices>) -> Prices {
        let (rows, weights) = (self.program.rows, &self.aim.weights);
        let haste = self.aim.haste;
        let Some(hint) = hint else {
            let row = 1.0 / rows as f64;
            return Prices {
                rows: vec![row; rows * self.program.periods()],
                capacity: vec![0.0; self.capacities.len()],
                haste,
            };
        };
        let mut prices = Prices { haste, ..hint.clone() };
        for period in prices.rows.chunks_mut(rows) {
            period.iter_mut().zip(weights).for_each(|(price, weight)| *price /= weight);
            let sum: f64 = period.iter().sum();
            period.iter_mut().for_each(|price| *price /= sum);
        }
        prices
    }

    /// Row prices with the aim's weights in them.
    fn weighted(&self, prices: &Prices) -> Prices {
        let weights = self.aim.weights.iter().cycle();
        let rows = prices.rows.iter().zip(weights).map(|(price, weight)| price * weight).collect();
        Prices { rows, capacity: prices.capacity.clone(), haste: self.aim.haste }
    }

    fn value_s(&self, response: &Assignment, prices: &Prices) -> f64 {
        let weights = self.aim.weights.iter().cycle();
        let stations: f64 = response
            .load_s
            .iter()
            .zip(&prices.rows)
            .zip(weights)
            .map(|((load, price), weight)| load * price * weight)
            .sum();
        let capacity: f64 = (0..self.capacities.len())
            .filter_map(|at| {
                self.capacities[at].map(|capacity| prices.capacity[at] * (response.room_bytes[at] - capacity))
            })
            .sum();
        stations + capacity + self.aim.outright_s(self.program, response)
    }

    fn plane(&self, query: Prices, response: Assignment) -> Plane {
        if self.groups == 1 {
            let mut alone = response.clone();
            alone.chosen = Vec::new();
            return Plane { query, response, groups: vec![alone] };
        }
        let mut groups = vec![self.program.nothing(); self.groups];
        for item in 0..self.program.items.len() {
            self.program.book(&mut groups[item % self.groups], item, self.program.path(&response, item), 1.0);
        }
        Plane { query, response, groups }
    }

    /// Weights of the cuts with the least aim under the rooms. Missing room is paid at the dearest price, so that there always are some.
    fn mix(&self, planes: Vec<Plane>) -> Vec<(Plane, Vec<f64>)> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let rows = self.program.rows;
        let times: Vec<Variable> =
            (0..self.program.periods()).map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
        let weights: Vec<Vec<Variable>> = planes
            .iter()
            .map(|plane| {
                let of_group = |group| self.aim.outright_s(self.program, group) / self.reference_s;
                plane.groups.iter().map(|group| problem.add_var(of_group(group), (0.0, 1.0))).collect()
            })
            .collect();
        for group in 0..self.groups {
            let mut one = LinearExpr::empty();
            weights.iter().for_each(|weights| one.add(weights[group], 1.0));
            problem.add_constraint(one, ComparisonOp::Eq, 1.0);
        }
        let sum = |of: &dyn Fn(&Assignment) -> f64| {
            let mut expression = LinearExpr::empty();
            for (plane, weights) in planes.iter().zip(&weights) {
                for (group, weight) in plane.groups.iter().zip(weights) {
                    expression.add(*weight, clean(of(group)));
                }
            }
            expression
        };
        for at in 0..rows * self.program.periods() {
            let mut expression = sum(&|group| group.load_s[at] * self.aim.weights[at % rows] / self.reference_s);
            expression.add(times[at / rows], -1.0);
            problem.add_constraint(expression, ComparisonOp::Le, 0.0);
        }
        for (at, capacity) in self.capacities.iter().enumerate() {
            if let Some(capacity) = capacity {
                let missing = problem.add_var(DEAREST, (0.0, f64::INFINITY));
                let mut expression = sum(&|group| group.room_bytes[at] / capacity.max(1.0));
                expression.add(missing, -1.0);
                problem.add_constraint(expression, ComparisonOp::Le, 1.0);
            }
        }
        let solution = problem.solve().ok().and_then(|outcome| outcome.into_solution().ok());
        let Some(solution) = solution else {
            return planes.into_iter().last().map(|plane| (plane, vec![1.0; self.groups])).into_iter().collect();
        };
        let values = weights.iter().map(|of_plane| of_plane.iter().map(|weight| solution.var_value(*weight)).collect());
        let values: Vec<Vec<f64>> = values.collect();
        let used = |weights: &[f64]| weights.iter().any(|weight| *weight > 1e-7);
        planes.into_iter().zip(values).filter(|(_, weights)| used(weights)).collect()
    }
}

/// The linear program over the cuts: prices in, the highest value that all cuts admit out. Times are in units of the reference, room in
/// shares of a kind's room.
struct Master {
    values: Vec<Variable>,
    rows: Vec<Variable>,
    capacity: Vec<Option<Variable>>,
    problem: Problem,
    solved: Option<microlp::Solution>,
}

impl Master {
    fn new(setting: &Setting<'_>) -> Self {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let values: Vec<Variable> = (0..setting.groups).map(|_| problem.add_var(1.0, (-1e4, 1e4))).collect();
        let count = setting.program.rows;
        let rows: Vec<Variable> =
            (0..count * setting.program.periods()).map(|_| problem.add_var(0.0, (0.0, 1.0))).collect();
        let capacity =
            setting.capacities.iter().map(|capacity| capacity.map(|_| problem.add_var(-1.0, (0.0, DEAREST)))).collect();
        for of_period in rows.chunks(count) {
            let mut one = LinearExpr::empty();
            of_period.iter().for_each(|row| one.add(*row, 1.0));
            problem.add_constraint(one, ComparisonOp::Eq, 1.0);
        }
        Self { values, rows, capacity, problem, solved: None }
    }

    /// With one cut more; `None` when the solver gives up.
    fn plane(mut self, setting: &Setting<'_>, plane: &Plane) -> Option<Self> {
        let count = setting.program.rows;
        for (group, sums) in plane.groups.iter().enumerate() {
            let mut expression = LinearExpr::empty();
            expression.add(self.values[group], 1.0);
            for (at, variable) in self.rows.iter().enumerate() {
                let weight = setting.aim.weights[at % count];
                expression.add(*variable, -clean(sums.load_s[at] * weight / setting.reference_s));
            }
            for (at, variable) in self.capacity.iter().enumerate() {
                if let (Some(variable), Some(capacity)) = (variable, setting.capacities[at]) {
                    expression.add(*variable, -clean(sums.room_bytes[at] / capacity.max(1.0)));
                }
            }
            let outright = setting.aim.outright_s(setting.program, sums) / setting.reference_s;
            match self.solved.take() {
                Some(solution) => {
                    let outcome = solution.add_constraint(expression, ComparisonOp::Le, outright);
                    self.solved = Some(outcome.ok()?.into_solution().ok()?);
                }
                None => self.problem.add_constraint(expression, ComparisonOp::Le, outright),
            }
        }
        if self.solved.is_none() {
            self.solved = Some(self.problem.solve().ok()?.into_solution().ok()?);
        }
        Some(self)
    }

    fn upper_s(&self, setting: &Setting<'_>) -> f64 {
        self.solved.as_ref().map_or(f64::INFINITY, |solution| solution.objective() * setting.reference_s)
    }

    fn prices(&self, setting: &Setting<'_>) -> Prices {
        let solution = self.solved.as_ref();
        let of = |variable: &Variable| solution.map_or(0.0, |solution| solution.var_value(*variable).max(0.0));
        let mut rows: Vec<f64> = self.rows.iter().map(of).collect();
        for period in rows.chunks_mut(setting.program.rows) {
            let sum: f64 = period.iter().sum();
            period.iter_mut().for_each(|price| *price /= sum.max(1e-12));
        }
        let per_byte = |(at, variable): (usize, &Option<Variable>)| {
            let capacity = setting.capacities[at].map_or(1.0, |capacity| capacity.max(1.0));
            variable.as_ref().map_or(0.0, |variable| of(variable) * setting.reference_s / capacity)
        };
        Prices { rows, capacity: self.capacity.iter().enumerate().map(per_byte).collect(), haste: setting.aim.haste }
    }
}

/// Coefficients that are nothing but rounding confuse the solver.
fn clean(value: f64) -> f64 {
    if value.abs() < 1e-9 { 0.0 } else { value }
}
