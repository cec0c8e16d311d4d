use super::*;
use crate::reproduce::experiment::TestbedKind;
use stripewise::Voice;
use stripewise::laboratory::placements;
use stripewise_layout::RegionIndex;
use stripewise_planner::{PlanOptions, PolicyName};

fn with_setting(run: impl FnOnce(&Setting<'_>) -> Result<Findings>) -> Findings {
    let voice = Voice::silent();
    let progress = voice.cases("test");
    let findings = run(&Setting {
        testbed: TestbedKind::Simulated,
        seed: 1,
        cases: &[],
        voice: &voice,
        progress: &*progress,
        log: Default::default(),
    })
    .unwrap();
    assert!(!findings.rows.is_empty() && findings.rows.iter().all(|row| row.ours.is_finite()), "{:?}", findings.rows);
    findings
}

fn published(findings: &Findings) -> usize {
    findings.rows.iter().filter(|row| row.difference().is_some()).count()
}

/// Times within the simulator's rounding to nanoseconds.
#[test]
fn calibration_recovers_table_4() {
    let findings = with_setting(calibration::table_4);
    assert_eq!(published(&findings), 8);
    for row in &findings.rows {
        let difference = row.difference().unwrap();
        assert!(difference.abs() < 0.02, "{} {}: {} ({difference})", row.case, row.quantity, row.ours);
    }
}

#[test]
fn a_sample_of_table_5_names_all_cases() {
    let findings = with_setting(|setting| accuracy::table_5(setting, 500));
    // Counts of cases and rates of each of four lines.
    assert_eq!(published(&findings), 8);
    for panel in &findings.panels {
        let sum: f64 = panel.values.iter().flatten().flatten().sum();
        assert!((4.0..=9.0).contains(&sum), "{}: {sum} cases", panel.title);
    }
}

#[test]
fn there_are_as_many_cases_as_in_the_paper() {
    for (network, count) in [(ETHERNET, 4_200), (INFINIBAND, 2_200)] {
        let cases = accuracy::cases(network, Order::Random);
        assert_eq!(cases.len(), count);
        let distinct: std::collections::HashSet<(u32, u64)> =
            cases.iter().map(|ior| (ior.processes, ior.request.0)).collect();
        assert_eq!(distinct.len(), count);
        assert_eq!((cases[0].request.0, cases[count - 1].request.0), (4 << 10, 4 << 20));
    }
}

#[test]
fn figures_are_complete() {
    let few = with_setting(|setting| figure_2(setting, 2));
    assert_eq!((few.panels.len(), few.rows.len()), (2, 2 * (7 + 11)));
    let mixed = with_setting(|setting| mixed::figure_6(setting, 1));
    assert_eq!((mixed.panels.len(), published(&mixed)), (4, 4));
    let replicated = with_setting(|setting| mixed::figure_7(setting, 1));
    assert_eq!((replicated.panels.len(), published(&replicated)), (4, 24));
    let tiles = with_setting(tiles::figure_8);
    assert_eq!((tiles.panels.len(), published(&tiles)), (2, 12));
}

/// Layouts of a file for each process are made here directly; they are those that the policies give.
#[test]
fn process_layouts_are_the_policies() {
    let site = ETHERNET.site().unwrap();
    let ior = Ior {
        processes: 20,
        request: ByteCount(64 << 10),
        order: Order::Random,
        direction: Direction::Read,
        requests: 2,
    };
    let program = ior.program(ETHERNET.nodes, 1).unwrap();
    let files = site.lab.count(&*program);
    let policies = [PolicyName::OneDh, PolicyName::OneDv, PolicyName::TwoD];
    for (policy, layout) in policies.into_iter().zip(layouts(ETHERNET.servers)) {
        let options = PlanOptions { group_servers: GROUP_SERVERS, ..PlanOptions::default() };
        let plan = stripewise_planner::plan(policy, &site.lab.request(&*program, &files, options)).unwrap();
        for (rank, planned) in placements(&plan, &*program).iter().enumerate() {
            let ours = process_layout(layout, Stripes::Request, ETHERNET.servers, rank as u32, ior.request).unwrap();
            // The order within a group is ours.
            let sorted = |layout: &Layout| {
                let mut pairs: Vec<(ServerId, u32)> = layout.clone().into();
                pairs.sort_unstable();
                pairs
            };
            let planned = planned.windows[0].placement.layout_of(RegionIndex(0));
            assert_eq!(sorted(planned), sorted(&ours), "{policy} {rank}");
        }
    }
}

#[test]
fn copies_are_chosen_by_cost() {
    let site = ETHERNET.site().unwrap();
    let chosen = |processes, request| {
        LAYOUTS[site.choice(&Ior {
            processes,
            request: ByteCount(request),
            order: Order::Sequential,
            direction: Direction::Read,
            requests: 1,
        })]
    };
    assert_eq!([chosen(1, 4 << 20), chosen(96, 4 << 20), chosen(8, 4 << 10)], ["1-DH", "1-DV", "1-DV"]);
}
