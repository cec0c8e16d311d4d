use super::*;
use crate::reproduce::experiment::TestbedKind;
use stripewise::Voice;

const SMALL: ByteCount = ByteCount(64 << 20);

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

#[test]
fn unaligned_requests_cost_bandwidth() {
    let figure = with_setting(|setting| figure_2(setting, SMALL));
    assert_eq!(published(&figure), 1);
    assert!(figure.rows.iter().all(|row| row.ours > 1.0), "{:?}", figure.rows);
    let three = with_setting(|setting| patterns(setting, SMALL));
    assert!(three.rows.iter().all(|row| row.ours > 1.0), "{:?}", three.rows);
}

#[test]
fn fragments_on_ssds_speed_up_unaligned_reads() {
    let figure = with_setting(|setting| figure_3(setting, SMALL));
    assert_eq!((figure.panels.len(), published(&figure)), (2, 12));
    // With more processes, and by writes, they do not: see the discussion.
    for processes in [16, 32, 64, 128] {
        let case = format!("{processes} processes read");
        let row = figure.rows.iter().find(|row| row.case == case && row.quantity == "iBridge over PVFS2").unwrap();
        assert!(row.ours > 1.0, "{case}: {}", row.ours);
    }
}

#[test]
fn programs_have_the_published_shares() {
    let table = with_setting(|setting| mixes::table_1(setting, 1_000));
    assert_eq!(table.rows.len(), 4 * 3 + 2);
    for row in table.rows.iter().filter(|row| row.quantity != "unaligned, as the text says") {
        assert!(row.difference().unwrap().abs() < 1.0, "{} {}: {}", row.case, row.quantity, row.ours);
    }
}

#[test]
fn alignment_and_fragments_on_ssds_shorten_service_times() {
    let table = with_setting(|setting| mixes::table_2(setting, 50));
    assert_eq!(published(&table), 12);
    for row in table.rows.iter().filter(|row| row.unit == Unit::Percent) {
        assert!(row.ours > 0.0, "{}: {}", row.case, row.ours);
    }
}
