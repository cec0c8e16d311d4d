use super::*;
use crate::reproduce::experiment::TestbedKind;
use stripewise::Voice;

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

#[test]
fn stripes_are_counted_once_for_each_request_that_touches_them() {
    let program = "ior:pattern=sequential,size=16MiB,transfer=96KiB,block=960KiB,processes=1,op=read";
    let program = program.parse::<Benchmark>().unwrap().program().unwrap();
    let counts = stripes_accessed(&*program, &fixed(DEFAULT_STRIPE).unwrap());
    let expected = requests(&*program).fold(vec![0u64; SERVERS as usize], |mut counts, request| {
        let stripes = request.offset.0 / DEFAULT_STRIPE.0..=(request.offset.0 + request.bytes - 1) / DEFAULT_STRIPE.0;
        stripes.for_each(|stripe| counts[stripe as usize % SERVERS as usize] += 1);
        counts
    });
    assert_eq!(counts, expected);
}

#[test]
fn the_poster_is_complete() {
    let counts = with_setting(chombo);
    assert_eq!(counts.panels.iter().map(|panel| panel.groups.len()).collect::<Vec<_>>(), [16, 16]);
    let factors = with_setting(|setting| factors::key_factors(setting, 1));
    assert_eq!(factors.panels.len(), 4);
    for sigma in [0.0, 0.2] {
        let mixed = with_setting(|setting| mixed::mixed_ior(setting, sigma));
        // The ends of two ranges, and the imbalance that is asked for.
        assert_eq!(mixed.rows.iter().filter(|row| row.difference().is_some()).count(), 9);
    }
}
