//! The planner against plain transcriptions of the papers, brute force and the papers' published results.

mod brute_force;
mod invariants;
mod linear_programs;
mod papers;
mod plan_file;
mod testbed;
mod text;
