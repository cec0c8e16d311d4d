//! Explanations against predictions made by hand.

use crate::testbed::{self, KIB, MIB};
use stripewise_layout::{ByteCount, Cluster, Direction, Layout, Order, Placement, RegionIndex, ServerId};
use stripewise_model::Profile;
use stripewise_planner::explain::{ExplainError, Explainer, overview_text, region_text};
use stripewise_planner::{Plan, PlanRequest, PolicyName, plan, predict};
use stripewise_trace::FileAccess;

struct Case {
    cluster: Cluster,
    profile: Profile,
    files: [FileAccess; 1],
}

impl Case {
    /// Four disks and two SSDs with space for two regions each; region 2 is asked for most, region 1 never.
    fn new() -> Self {
        let cluster = testbed::cluster(4, 2, MIB, Some(2 * MIB));
        let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
        let read = testbed::class(Direction::Read, 256 * KIB, Order::Random);
        let write = testbed::class(Direction::Write, 64 * KIB, Order::Random);
        let counts: [&[u64]; 6] = [&[90, 30], &[0, 0], &[700, 0], &[10, 50], &[0, 4], &[20, 0]];
        let files = [testbed::file("/data/a", 6 * MIB, MIB, &[read, write], &counts)];
        Self { cluster, profile, files }
    }

    fn request(&self) -> PlanRequest<'_> {
        testbed::request(&self.cluster, &self.profile, &self.files)
    }

    fn plan(&self, policy: PolicyName) -> Plan {
        plan(policy, &self.request()).unwrap()
    }
}

/// The time of the only window with one region's layout changed.
fn time_with(case: &Case, made: &Plan, region: u32, layout: &Layout) -> f64 {
    let placement = made.files[0].initial();
    let regions = (0..6).map(|number| if number == region { layout } else { placement.layout_of(RegionIndex(number)) });
    let fallback = placement.fallback_layout().clone();
    let changed = Placement::from_regions(ByteCount(MIB), regions.cloned(), fallback.clone(), fallback);
    predict(&changed, &case.files[0], &case.profile, Some(0), made.concurrency).total.time_s
}

#[test]
fn alternatives_cost_what_is_predicted_with_everything_else_in_place() {
    let case = Case::new();
    for policy in PolicyName::ALL {
        let (made, request) = (case.plan(policy), case.request());
        let explainer = Explainer::new(&made, &request).unwrap();
        for region in [0, 2, 3] {
            let found = explainer.region(0, RegionIndex(region)).unwrap();
            let planned_s = made.predicted.total.time_s;
            assert!((found.window.time_s / planned_s - 1.0).abs() < 1e-9);
            let planned: Vec<_> = found.alternatives.iter().filter(|one| one.is_planned).collect();
            assert_eq!(planned.len(), 1);
            assert!(planned[0].names.contains(&policy.to_string()) && planned[0].difference_s == 0.0);
            assert!(found.alternatives.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s));
            // Every policy is named once, and each kind of server twice.
            let names: usize = found.alternatives.iter().map(|one| one.names.len()).sum();
            assert_eq!(names, PolicyName::ALL.len() + 4);
            // Both SSDs serve equally much or the first less: a region whole on the one that serves less.
            let whole = |one: &&stripewise_planner::explain::Alternative| {
                one.names.iter().any(|name| name == "whole on one ssd")
            };
            let whole = found.alternatives.iter().find(whole).unwrap();
            let least = if made.predicted.server_load_s[5] < made.predicted.server_load_s[4] { 5 } else { 4 };
            let expected = time_with(&case, &made, region, &Layout::new([(ServerId(least), MIB as u32)]).unwrap());
            assert!((whole.time_s / expected - 1.0).abs() < 1e-9, "{policy} {region}: {} {expected}", whole.time_s);
            assert_eq!(whole.ssd_bytes, MIB);
        }
    }
}

#[test]
fn a_region_that_nobody_asks_for_says_so_and_one_that_is_not_there_is_refused() {
    let case = Case::new();
    let (made, request) = (case.plan(PolicyName::H2dp), case.request());
    let explainer = Explainer::new(&made, &request).unwrap();
    let found = explainer.region(0, RegionIndex(1)).unwrap();
    assert_eq!((found.asked.len(), found.processes), (0, 0));
    assert!(found.reason.starts_with("nothing in the trace asks for this region"), "{}", found.reason);
    assert_eq!(explainer.region(0, RegionIndex(6)).unwrap_err().to_string(), "/data/a has regions 0 to 5, not 6");
    let mut other = case.files.clone();
    other[0].path = "/data/b".to_owned();
    let request = testbed::request(&case.cluster, &case.profile, &other);
    let error = Explainer::new(&made, &request).err().unwrap();
    assert_eq!(error, ExplainError::OtherFiles { planned: "/data/a".to_owned(), found: "/data/b".to_owned() });
}

#[test]
fn a_gib_more_is_worth_what_the_same_policy_saves_with_it() {
    let case = Case::new();
    let (made, request) = (case.plan(PolicyName::H2dp), case.request());
    let price = Explainer::new(&made, &request).unwrap().overview().unwrap().ssd_price.unwrap();
    let has_capacity = testbed::cluster(4, 2, MIB, Some(2 * MIB + (1 << 29)));
    let enlarged = plan(PolicyName::H2dp, &testbed::request(&has_capacity, &case.profile, &case.files)).unwrap();
    assert!((price.saved_s_per_gib - (made.predicted.total.time_s - enlarged.predicted.total.time_s)).abs() < 1e-12);
    assert_eq!((price.room_bytes, price.is_dual), (4 * MIB, false));
    assert_eq!(price.servers, ["ssd0", "ssd1"]);
    // Of `opt` it is the dual price, the mean over the servers that share the GiB.
    let made = case.plan(PolicyName::Opt);
    let prices = &made.optimum.as_ref().unwrap().prices;
    let price = Explainer::new(&made, &request).unwrap().overview().unwrap().ssd_price.unwrap();
    assert!(price.is_dual);
    assert!((price.saved_s_per_gib - (prices[4].room_s_per_gib + prices[5].room_s_per_gib) / 2.0).abs() < 1e-12);
    // Room that nobody limits has no price.
    let unlimited = testbed::cluster(4, 2, MIB, None);
    let request = testbed::request(&unlimited, &case.profile, &case.files);
    let made = plan(PolicyName::H2dp, &request).unwrap();
    assert_eq!(Explainer::new(&made, &request).unwrap().overview().unwrap().ssd_price, None);
}

#[test]
fn an_overview_names_the_regions_that_take_most() {
    let case = Case::new();
    let (made, request) = (case.plan(PolicyName::H2dp), case.request());
    let found = Explainer::new(&made, &request).unwrap().overview().unwrap();
    assert_eq!(found.regions.iter().map(|one| one.requests).sum::<u64>(), 904);
    assert_eq!(found.regions[0].region, RegionIndex(2));
    assert!(found.regions.windows(2).all(|pair| pair[0].service_s >= pair[1].service_s));
    assert!((found.regions.iter().map(|one| one.share).sum::<f64>() - 1.0).abs() < 1e-9);
    let window = &found.windows[0];
    assert!((window.time_s / found.time_s - 1.0).abs() < 1e-9);
    assert!(window.pace.as_ref().is_some_and(|pace| pace.busy > 0.0 && pace.busy <= 1.0));
}

#[test]
fn explanations_read_so() {
    let case = Case::new();
    let (made, request) = (case.plan(PolicyName::H2dp), case.request());
    let explainer = Explainer::new(&made, &request).unwrap();
    assert_eq!(
        overview_text(&explainer.overview().unwrap(), "stripewise apply plan.json"),
        "\
verdict    apply: placing 6 MiB takes 23.3 ms ±14 %, which the first run wins back (each saves 2.59 s, 1.94 s to 3.24 s)\n\
next       stripewise apply plan.json\n\
policy     h2dp, a run is predicted to take 959 ms ±13 %, gain over def +270 % (+203 .. +338)\n\
window     0, 0 s to 10 min: 959 ms ±13 % predicted; the link of ssd0 is busiest, 100 % of the time\n\
capacity   full: ssd0, ssd1\n\
one GiB    more SSD capacity, over ssd0 to ssd1, loses 25 ms ±13 % of a run (planned again; now 4 MiB there)\n\
regions that take most service time\n\
\x20  share   service  requests       bytes  region\n\
\x20 70.3 %    2.51 s       700     175 MiB  /data/a:2 <0B,128KiB>\n\
\x20 14.1 %    502 ms        20       5 MiB  /data/a:5 <64KiB,0B>\n\
\x20 10.3 %    368 ms       120    24.4 MiB  /data/a:0 <0B,124KiB>\n\
\x20  3.3 %    118 ms        60     5.6 MiB  /data/a:3 <0B,76KiB>\n\
\x20  2.0 %   70.3 ms         4     256 KiB  /data/a:4 <16KiB,0B>\n\
"
    );
    assert_eq!(
        region_text(&explainer.region(0, RegionIndex(2)).unwrap()),
        "\
why        h2dp decides by its own cost of one request, which does not see what the others load: \
by this prediction opt would save 35 ms and fits\n\
region     /data/a:2 (1 MiB), by h2dp <0B,128KiB>\n\
asked for  700 reads of 256 KiB at random\n\
\x20          by 32 processes\n\
window     0 s to 10 min: 959 ms ±13 % predicted; the link of ssd0 is busiest, 100 % of the time\n\
layouts of this region with everything else in place, predicted ±13 %\n\
\x20     window   against the plan  layout\n\
\x20     924 ms             -35 ms  <0B,512KiB> (opt)\n\
\x20     959 ms           the plan  <0B,128KiB> (h2dp, padp, spread over all ssd)\n\
\x20     1.69 s            +727 ms  ssd1 1MiB (whole on one ssd)\n\
\x20     2.35 s            +1.39 s  <252KiB,252KiB> (1-dv, cost)\n\
\x20     2.36 s             +1.4 s  <128KiB,128KiB> (2-d)\n\
\x20     3.12 s            +2.16 s  <64KiB,64KiB> (def, segment)\n\
\x20     3.97 s            +3.01 s  <44KiB,44KiB> (1-dh)\n\
\x20     3.97 s            +3.01 s  <44KiB,40KiB> (psa)\n\
\x20     3.99 s            +3.03 s  <44247B,40124B> (random)\n\
\x20     4.11 s            +3.15 s  <64KiB,0B> (spread over all hdd)\n\
\x20     5.49 s            +4.53 s  hdd0 1MiB (whole on one hdd)\n\
SSD space  1 MiB of it saves 3.15 s ±13 % here, against the fastest layout without\n\
"
    );
}
