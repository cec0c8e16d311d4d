//! A cluster for trying the preload library by hand: `testbed DIRECTORY [REGION-BYTES STRIPE-BYTES]` makes it there,
//! manages `DIRECTORY/data`, prints the environment to run programs with, and serves until its standard input ends.

#[path = "../tests/support/bed.rs"]
#[allow(unreachable_pub, reason = "the tests share it")]
mod bed;

use std::path::Path;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().expect("usage: testbed DIRECTORY [REGION-BYTES STRIPE-BYTES]");
    let mut number = |otherwise| arguments.next().map_or(otherwise, |text| text.parse().expect("a number of bytes"));
    let (region, stripe) = (number(bed::REGION_BYTES), number(4096));
    std::fs::create_dir_all(&root).unwrap();
    let root = std::fs::canonicalize(Path::new(&root)).unwrap();
    let bed = bed::Bed::new(&root, region, u32::try_from(stripe).unwrap());
    println!("STRIPEWISE_STATE={} # in {}", bed.state.display(), bed.data.display());
    let _ = std::io::read_to_string(std::io::stdin());
}
