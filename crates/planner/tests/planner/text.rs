//! What the command prints, letter by letter.

use crate::testbed::{self, KIB, MIB};
use stripewise_layout::{Direction, Layout, Order, ServerId};
use stripewise_planner::{PlanRequest, PolicyName, compare, comparison_text, layout_text, plan, plan_text};
use stripewise_trace::FileAccess;

fn access() -> FileAccess {
    let read = testbed::class(Direction::Read, 256 * KIB, Order::Random);
    let write = testbed::class(Direction::Write, 64 * KIB, Order::Sequential);
    testbed::file(
        "/data/a",
        6 * MIB,
        MIB,
        &[read, write],
        &[&[90, 30], &[0, 0], &[700, 0], &[10, 50], &[0, 4], &[20, 0]],
    )
}

const OF_THE_HYBRID_PAPERS: [PolicyName; 4] = [PolicyName::Def, PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp];

#[test]
fn a_comparison_reads_so() {
    let cluster = testbed::cluster(4, 2, MIB, Some(MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let files = [access()];
    let comparison = compare(&testbed::request(&cluster, &profile, &files), &OF_THE_HYBRID_PAPERS).unwrap();
    assert_eq!(
        comparison_text(&comparison),
        "\
policy        time  read MB/s  write MB/s  within  gain over def (low .. high)      on SSD  verdict\n\
h2dp        900 ms      259.9        75.0   ±17 %        +294 % (+222 .. +367)       2 MiB  apply\n\
padp        924 ms      236.9       337.2   ±17 %        +285 % (+214 .. +355)       2 MiB  apply\n\
def         3.55 s       61.8        74.7   ±17 %                         none     1.5 MiB  leave it\n\
psa         4.65 s       48.1        30.8   ±17 %            -24 % (-38 .. -9)     1.9 MiB  leave it\n\
h2dp: apply: placing 6 MiB takes 21.7 ms ±14 %, which the first run wins back (each saves 2.65 s, 2 s to 3.31 s)\n\
padp: apply: placing 6 MiB takes 21.3 ms ±14 %, which the first run wins back (each saves 2.63 s, 1.98 s to 3.28 s)\n\
def: leave it: this is the default placement, the measure of the others\n\
psa: leave it: a run is predicted to lose 1.1 s against def (432 ms to 1.76 s)\n\
"
    );
}

#[test]
fn a_plan_reads_so() {
    let cluster = testbed::cluster(4, 2, MIB, Some(MIB));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    let mut file = access();
    let mut later = access().windows.remove(0);
    (later.start_s, later.end_s) = (600.0, 1200.0);
    later.regions.remove(1);
    file.windows.push(later);
    let files = [file];
    let made = plan(PolicyName::H2dp, &testbed::request(&cluster, &profile, &files)).unwrap();
    assert_eq!(
        plan_text(&made, &cluster, "stripewise apply plan.json"),
        "\
verdict    apply: placing 6 MiB takes 21.7 ms ±14 %, which the first run wins back (each saves 2.89 s, 2.13 s to 3.65 s)\n\
gain       +241 % (+179 .. +304) over def, predicted by h2dp\n\
next       stripewise apply plan.json\n\
policy     h2dp\n\
for        app with 32 processes (costed with p = 32, c = 1)\n\
read       247.1 MB/s ±13 % predicted, def 61.8 MB/s ±14 %, gain +300 % (+226 .. +373)\n\
write      51.4 MB/s ±15 % predicted, def 74.8 MB/s ±15 %, gain -31 % (-46 .. -17)\n\
servers    class      holds      space    serves ±15 %\n\
\x20 hdd0     hdd      1.3 MiB    unknown    800 ms\n\
\x20 hdd1     hdd      1.3 MiB    unknown    798 ms\n\
\x20 hdd2     hdd      1.2 MiB    unknown    792 ms\n\
\x20 hdd3     hdd      1.2 MiB    unknown    792 ms\n\
\x20 ssd0     ssd        1 MiB      1 MiB    533 ms\n\
\x20 ssd1     ssd        1 MiB      1 MiB    529 ms\n\
file       /data/a (6 MiB)\n\
\x20 window 0, 0 s to 10 min, regions of 1 MiB\n\
\x20   0..1         <64KiB,0B>\n\
\x20   2            <0B,128KiB>\n\
\x20   3            <40KiB,0B>\n\
\x20   4            <16KiB,0B>\n\
\x20   5            <0B,128KiB>\n\
\x20 window 1, 10 min to 20 min, regions of 1 MiB; moves 2 out, 0 restriped, 1 in\n\
\x20   0            <0B,124KiB>\n\
\x20   1..2         <64KiB,0B>\n\
\x20   3            <40KiB,0B>\n\
\x20   4            <16KiB,0B>\n\
\x20   5            <64KiB,0B>\n\
"
    );
}

#[test]
fn layouts_read_as_pairs_or_as_lists() {
    let cluster = testbed::cluster(3, 2, MIB, None);
    let text = |pairs: &[(u16, u64)]| {
        let layout = Layout::new(pairs.iter().map(|(server, size)| (ServerId(*server), *size as u32))).unwrap();
        layout_text(&layout, &cluster)
    };
    assert_eq!(text(&[(0, 4 * KIB), (1, 4 * KIB), (2, 4 * KIB), (3, MIB), (4, MIB)]), "<4KiB,1MiB>");
    assert_eq!(text(&[(3, 6 * KIB), (4, 6 * KIB)]), "<0B,6KiB>");
    assert_eq!(text(&[(0, 512), (1, 512), (2, 512)]), "<512B,0B>");
    assert_eq!(text(&[(4, MIB)]), "ssd1 1MiB");
    assert_eq!(text(&[(0, KIB), (1, KIB), (3, 2 * KIB), (4, 3 * KIB)]), "hdd0..hdd1 1KiB, ssd0 2KiB, ssd1 3KiB");
    assert_eq!(text(&[(2, KIB), (1, KIB)]), "hdd2 1KiB, hdd1 1KiB");
}

/// The verdict's sentence for `runs` accepted runs and the accesses of `files`.
fn reason(policy: PolicyName, files: &[FileAccess], worth_runs: f64, spread: f64) -> (bool, String) {
    let cluster = testbed::cluster(4, 2, MIB, Some(2 * MIB));
    let mut profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    profile.servers.iter_mut().for_each(|server| server.read_random.spread = spread);
    let mut request: PlanRequest<'_> = testbed::request(&cluster, &profile, files);
    request.options.worth_runs = worth_runs;
    let verdict = plan(policy, &request).unwrap().verdict;
    (verdict.apply, verdict.reason)
}

#[test]
fn verdicts_say_why() {
    let one = |requests: u64| {
        let class = testbed::class(Direction::Read, 256 * KIB, Order::Random);
        [testbed::file("/data/a", 64 * MIB, MIB, &[class], &[&[requests]])]
    };
    let found = [
        reason(PolicyName::Def, &one(900), 10.0, 0.05),
        reason(PolicyName::H2dp, &one(900), 10.0, 0.05),
        reason(PolicyName::H2dp, &one(30), 2.0, 0.05),
        reason(PolicyName::H2dp, &one(900), 10.0, 0.9),
    ];
    let expected = [
        (false, "leave it: this is the default placement, the measure of the others"),
        (
            true,
            "apply: placing 64 MiB takes 335 ms ±14 %, which the first run wins back (each saves 2.78 s, 2.09 s to 3.48 s)",
        ),
        (false, "leave it: placing 64 MiB takes 335 ms ±14 %, which only 4 runs win back; at most 2 are allowed"),
        (false, "leave it: the predicted gain of 269 % is within the prediction's spread of 324 %"),
    ];
    assert_eq!(found, expected.map(|(apply, reason)| (apply, reason.to_owned())));
}
