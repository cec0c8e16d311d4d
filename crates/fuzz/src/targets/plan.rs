//! `plan.json`.

use crate::Outcome;
use std::path::Path;
use stripewise_layout::RegionIndex;
use stripewise_planner::Plan;

pub fn run(bytes: &[u8]) -> Outcome {
    let path = Path::new("plan.json");
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let plan = match Plan::parse(text, path) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(error.to_string().contains("plan.json"), "{error}");
            return Outcome::Refused;
        }
    };
    assert_eq!(Plan::parse(&plan.to_json(), path).unwrap(), plan);
    for window in plan.files.iter().flat_map(|file| &file.windows) {
        assert_eq!(window.placement.check(plan.servers.len()), Ok(()));
        crate::layouts::check_placement(&window.placement, plan.servers.len());
        for replica in &window.replicas {
            crate::layouts::check_layout(&replica.layout, window.placement.region_size.0);
        }
    }
    for file in &plan.files {
        for time_s in [-1.0, 0.0, 1e300, f64::NAN] {
            assert!(!file.placement_at(time_s).layout_of(RegionIndex(1)).stripes().is_empty());
        }
    }
    if let Some(found) = plan.lookup("/data/out.3.h5", "app", 64) {
        assert!(plan.files.iter().any(|file| std::ptr::eq(file, found.file)));
    }
    assert!(plan.key.programs().count() > 0 && plan.key.all_processes() >= plan.key.processes);
    let _ = plan.ssd_bytes();
    Outcome::Read
}
