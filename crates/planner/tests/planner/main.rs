//! The planner against plain transcriptions of the papers, brute force and the papers' published results.

mod brute_force;
mod damaged_files;
mod document;
mod explain;
mod fixed_layouts;
mod hosts;
mod invariants;
mod linear_programs;
mod measured;
mod online;
mod papers;
mod plan_file;
mod predictions;
mod promises;
mod replicas;
mod segments;
mod testbed;
mod text;
mod wild_input;
mod written_back;
