//! The closed form of PADP's linear programs against a general solver.
//!
//! `microlp` is pure Rust and small; HiGHS would cost minutes of every clean build for programs of two variables.

use crate::testbed;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem};
use proptest::prelude::*;
use stripewise_model::padp::PadpPattern;
use stripewise_model::{Coefficients, Concurrency};
use stripewise_planner::policy::padp::optimum;

/// Minimum of F as one linear program: both maxima become variables that are at least each of their terms. Sizes in units of r and costs
/// in units of `scale`, so that the solver's absolute tolerances mean something.
fn solver_minimum_s(pattern: &PadpPattern, scale: f64) -> f64 {
    let (p, c) = pattern.concurrency.factors();
    let (r, t) = (pattern.request_bytes, pattern.t_s_per_byte);
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let h = problem.add_var(0.0, (0.0, f64::INFINITY));
    let s = problem.add_var(0.0, (0.0, f64::INFINITY));
    let transfer = problem.add_var(1.0, (0.0, f64::INFINITY));
    let storage = problem.add_var(1.0, (0.0, f64::INFINITY));
    let row = |terms: &[(microlp::Variable, f64)]| {
        let mut expression = LinearExpr::empty();
        terms.iter().for_each(|(variable, factor)| expression.add(*variable, *factor));
        expression
    };
    let servers = (f64::from(pattern.hservers), f64::from(pattern.sservers));
    problem.add_constraint(row(&[(h, servers.0), (s, servers.1)]), ComparisonOp::Eq, 1.0);
    problem.add_constraint(row(&[(transfer, 1.0)]), ComparisonOp::Ge, c * r * t / scale);
    for (stripe, coefficients) in [(h, pattern.hdd), (s, pattern.ssd)] {
        problem.add_constraint(row(&[(transfer, 1.0), (stripe, -p * r * t / scale)]), ComparisonOp::Ge, 0.0);
        let slope = -p * r * coefficients.beta_s_per_byte / scale;
        problem.add_constraint(
            row(&[(storage, 1.0), (stripe, slope)]),
            ComparisonOp::Ge,
            p * coefficients.alpha_s / scale,
        );
    }
    problem
        .solve()
        .expect("F is bounded below and the segment is not empty")
        .into_solution()
        .expect("no limit was set")
        .objective()
        * scale
}

proptest! {
    #[test]
    fn the_closed_form_is_the_solvers_minimum(
        hservers in 1u32..13, sservers in 1u32..9, r in 512u64..(64 << 20), processes in 1u32..65, processes_per_node in 1u32..9,
        hdd in testbed::lines(), ssd in testbed::lines(), t in prop_oneof![Just(0.0), 0.0..1e-8f64],
    ) {
        let coefficients = |(alpha_s, beta_s_per_byte)| Coefficients { alpha_s, beta_s_per_byte };
        let pattern = PadpPattern {
            hservers, sservers, request_bytes: r as f64, concurrency: Concurrency { processes, processes_per_node },
            hdd: coefficients(hdd[1]), ssd: coefficients(ssd[1]), e_s: 0.0, t_s_per_byte: t,
        };
        let found = optimum(&pattern);
        let covered = f64::from(hservers) * found.h_bytes + f64::from(sservers) * found.s_bytes;
        prop_assert!((covered - r as f64).abs() < 1e-6 * r as f64);
        let objective_s = pattern.objective_s(found.h_bytes, found.s_bytes);
        prop_assert!((objective_s - found.objective_s).abs() <= 1e-9 * objective_s);
        let least_s = solver_minimum_s(&pattern, objective_s);
        prop_assert!((objective_s - least_s).abs() <= 1e-6 * objective_s, "{objective_s} but the solver has {least_s}");
    }
}
