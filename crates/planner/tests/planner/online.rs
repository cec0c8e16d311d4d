//! Planning window by window without foresight.

use crate::testbed::{self, GIB, KIB, MIB};
use stripewise_layout::{ByteCount, Direction, Layout, Order, Placement, RegionIndex, ServerId};
use stripewise_planner::{
    Guess, History, MoveKind, Online, OnlineStep, OnlineWindow, PlanOptions, PlanRequest, PolicyName, online_step,
    online_step_by, plan,
};
use stripewise_trace::FileAccess;

const REGIONS: usize = 24;
const REGION_BYTES: u64 = 64 * MIB;
const ROOM_BYTES: u64 = 3 * REGION_BYTES;
/// Servers 4 and 5 are SSDs.
const FIRST_SSD: ServerId = ServerId(4);

/// Small reads, of which all but a few fall on `hot`.
fn window(hot: [usize; 6]) -> FileAccess {
    let counts: Vec<u64> = (0..REGIONS).map(|region| if hot.contains(&region) { 6000 } else { 60 }).collect();
    let counts: Vec<&[u64]> = counts.iter().map(std::slice::from_ref).collect();
    let read = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    testbed::file("/data/a", REGIONS as u64 * REGION_BYTES, REGION_BYTES, &[read], &counts)
}

const FIRST: [usize; 6] = [1, 4, 8, 13, 17, 22];
const SECOND: [usize; 6] = [0, 5, 9, 12, 18, 23];

/// A history of such windows, one after the other.
fn history(windows: &[[usize; 6]]) -> History {
    let mut history = History::new(Online::default(), 1);
    windows.iter().for_each(|hot| history.see(&[window(*hot)], 0));
    history
}

fn guess(windows: &[[usize; 6]]) -> Guess {
    history(windows).guess(&[window(FIRST)]).expect("something was seen")
}

fn guessed_requests(guess: &Guess, region: usize) -> u64 {
    let of_region = guess.files[0].windows[0].regions.iter().find(|access| access.region == RegionIndex(region as u32));
    of_region.map_or(0, |access| access.counts.iter().map(|(_, count)| count).sum())
}

/// Four disks and two SSDs.
fn with_request<T>(files: &[FileAccess], options: PlanOptions, then: impl FnOnce(&PlanRequest<'_>) -> T) -> T {
    let cluster = testbed::cluster(4, 2, REGION_BYTES, Some(ROOM_BYTES));
    let profile = testbed::profile(&cluster, testbed::DISK, testbed::FLASH, 1e-4, 8e-9);
    then(&PlanRequest { options, ..testbed::request(&cluster, &profile, files) })
}

/// What `opt --online` makes of these windows.
fn planned_online(windows: &[[usize; 6]]) -> Vec<Placement> {
    let mut file = window(windows[0]);
    file.windows = windows.iter().map(|hot| window(*hot).windows.remove(0)).collect();
    for (number, window) in file.windows.iter_mut().enumerate() {
        (window.start_s, window.end_s) = (600.0 * number as f64, 600.0 * (number + 1) as f64);
    }
    let options = PlanOptions { online: Some(Online::default()), ..PlanOptions::default() };
    let made = with_request(&[file], options, |request| plan(PolicyName::Opt, request).unwrap());
    (0..windows.len()).map(|number| made.files[0].placement_at(600.0 * number as f64).clone()).collect()
}

fn ssd_bytes(placement: &Placement, region: usize) -> u64 {
    let layout = placement.layout_of(RegionIndex(region as u32));
    let turns = layout.stripes().iter().enumerate().filter(|(_, stripe)| stripe.server >= FIRST_SSD);
    turns.map(|(turn, _)| layout.view().object_bytes(turn, REGION_BYTES)).sum()
}

fn fits(placement: &Placement) -> bool {
    let on = |server: u16| -> u64 {
        let of_region = |region: usize| -> u64 {
            let layout = placement.layout_of(RegionIndex(region as u32));
            let turns = layout
                .stripes()
                .iter()
                .enumerate()
                .filter(|(_, stripe)| u64::from(stripe.server.0) == u64::from(server));
            turns.map(|(turn, _)| layout.view().object_bytes(turn, REGION_BYTES)).sum()
        };
        (0..REGIONS).map(of_region).sum()
    };
    (4..6).all(|server| on(server) <= ROOM_BYTES)
}

fn step(guess: &Guess, now: &Placement) -> OnlineWindow {
    with_request(&guess.files, PlanOptions::default(), |request| {
        online_step(request, guess.windows, std::slice::from_ref(now)).unwrap().remove(0)
    })
}

#[test]
fn nothing_seen_is_nothing_guessed_and_the_first_window_uses_every_server() {
    assert_eq!(History::new(Online::default(), 1).guess(&[window(FIRST)]), None);
    let blind = &planned_online(&[FIRST, FIRST])[0];
    let used = |server: u16| {
        (0..REGIONS).any(|region| {
            blind.layout_of(RegionIndex(region as u32)).stripes().iter().any(|stripe| stripe.server == ServerId(server))
        })
    };
    assert!((0..6).all(used) && fits(blind));
    // It knows nothing: what is accessed then makes no difference.
    assert_eq!(blind, &planned_online(&[SECOND, FIRST])[0]);
}

#[test]
fn a_changed_hot_set_is_forgotten_and_a_lasting_one_is_not() {
    let changed = guess(&[FIRST, FIRST, FIRST, SECOND]);
    let lasting = guess(&[FIRST, FIRST, FIRST, FIRST]);
    for region in FIRST {
        assert_eq!(guessed_requests(&changed, region), guessed_requests(&changed, 2), "region {region}");
        assert!(guessed_requests(&lasting, region) > 50 * guessed_requests(&lasting, 2), "region {region}");
    }
    assert!(SECOND.iter().all(|region| guessed_requests(&changed, *region) > 50 * guessed_requests(&changed, 2)));
}

#[test]
fn a_drifting_hot_set_is_not_forgotten() {
    let drifted = [0, 4, 8, 13, 17, 22];
    let guess = guess(&[FIRST, FIRST, FIRST, drifted]);
    assert!(guessed_requests(&guess, 1) > 10 * guessed_requests(&guess, 2));
    assert!(guessed_requests(&guess, 0) > guessed_requests(&guess, 1));
}

#[test]
fn hot_sets_are_taken_to_last_as_long_as_those_before() {
    // Of a life of six windows five are left, of one of two one.
    let long = guess(&[[FIRST; 6].as_slice(), &[SECOND]].concat());
    let short = guess(&[FIRST, FIRST, SECOND]);
    assert_eq!((guessed_requests(&long, 0), guessed_requests(&short, 0)), (5 * 6000, 6000));
    assert_eq!((long.windows, short.windows), (5.0, 1.0));
}

#[test]
fn regions_follow_the_hot_set_and_fit_the_room() {
    let placements = planned_online(&[FIRST, FIRST, FIRST, SECOND, SECOND, SECOND]);
    let on_ssds = |window: usize, hot: [usize; 6]| -> u64 {
        hot.iter().map(|region| ssd_bytes(&placements[window], *region)).sum()
    };
    assert!(placements.iter().all(fits));
    assert!(on_ssds(2, FIRST) > on_ssds(2, SECOND));
    assert!(on_ssds(5, SECOND) > on_ssds(5, FIRST));
}

#[test]
fn moves_lead_to_the_placement_and_never_take_room_before_it_is_free() {
    let now = planned_online(&[FIRST, FIRST, FIRST]).remove(2);
    let next = step(&guess(&[FIRST, FIRST, FIRST, FIRST, FIRST, FIRST, SECOND]), &now);
    assert!(fits(&next.placement) && !next.moves.is_empty());
    assert!(next.moves.is_sorted_by_key(|one| one.kind));
    assert!(next.moves.iter().any(|one| one.kind == MoveKind::Incoming));
    let changed = |region: &usize| {
        let region = RegionIndex(*region as u32);
        now.layout_of(region) != next.placement.layout_of(region)
    };
    let mut moved: Vec<usize> = next.moves.iter().map(|one| one.region.0 as usize).collect();
    moved.sort_unstable();
    assert_eq!(moved, (0..REGIONS).filter(changed).collect::<Vec<_>>());
    assert_eq!(next.moves.iter().map(|one| one.bytes).sum::<u64>(), moved.len() as u64 * REGION_BYTES);
    assert!(moved.len() as u64 * REGION_BYTES < GIB * 2);
}

/// Requests to regions in window after window; region k has the k-th part of the first one's.
fn graded() -> FileAccess {
    let counts: Vec<u64> = (0..REGIONS as u64).map(|region| 24_000 / (region + 1)).collect();
    let counts: Vec<&[u64]> = counts.iter().map(std::slice::from_ref).collect();
    let read = testbed::class(Direction::Read, 64 * KIB, Order::Random);
    testbed::file("/data/a", REGIONS as u64 * REGION_BYTES, REGION_BYTES, &[read], &counts)
}

#[test]
fn a_short_window_moves_the_hottest_and_the_next_ones_the_rest() {
    let mut now = planned_online(&[[18, 19, 20, 21, 22, 23]; 4]).remove(3);
    let expect = |windows| Guess { files: vec![graded()], windows };
    let at_once = step(&expect(1.0), &now);
    let incoming = |window: &OnlineWindow| -> Vec<u32> {
        let moves = window.moves.iter().filter(|one| one.kind == MoveKind::Incoming);
        moves.map(|one| one.region.0).collect()
    };
    // The same requests, but a thousand windows of them: there is no time for more than one move.
    let first = step(&expect(1000.0), &now);
    assert_eq!(first.moves.len(), 1, "{:?}", first.moves);
    assert!(at_once.moves.len() > 2 && incoming(&at_once).len() > 1);
    let mut came = Vec::new();
    let mut steps = 0;
    loop {
        let next = step(&expect(1000.0), &now);
        assert!(fits(&next.placement));
        if next.moves.is_empty() {
            break;
        }
        came.extend(incoming(&next));
        now = next.placement;
        steps += 1;
        assert!(steps < 100, "it never settles");
    }
    assert!(came.len() >= incoming(&at_once).len(), "{came:?}");
    assert!(came.is_sorted(), "hottest first: {came:?}");
}

/// Where the regions of [`FIRST`] lie on SSDs, all others on the disks.
fn first_on_ssds() -> Placement {
    let disks = Layout::new((0..4).map(|server| (ServerId(server), 64 << 10))).unwrap();
    let ssds = Layout::new((4..6).map(|server| (ServerId(server), 64 << 10))).unwrap();
    let layouts = (0..REGIONS).map(|region| if FIRST.contains(&region) { ssds.clone() } else { disks.clone() });
    Placement::from_regions(ByteCount(REGION_BYTES), layouts, disks.clone(), disks.clone())
}

/// Whichever policy proposes: what became hot comes to the SSDs, within their room; what is as it was stays where it is.
#[test]
fn any_policy_moves_what_is_worth_it_and_nothing_else() {
    for policy in [PolicyName::Opt, PolicyName::H2dp, PolicyName::Padp, PolicyName::Def] {
        let step = |hot: [usize; 6]| {
            let guess = guess(&[hot, hot, hot]);
            with_request(&guess.files, PlanOptions::default(), |request| {
                let how = OnlineStep { policy, windows: guess.windows, length_s: Some(600.0) };
                online_step_by(request, &how, &[first_on_ssds()]).unwrap().remove(0)
            })
        };
        let stayed = step(FIRST);
        let moved = step(SECOND);
        if policy == PolicyName::Opt {
            // It may still find a better stripe for one or the other.
            assert!(stayed.moves.len() <= 1 && moved.moves.len() > 4, "{:?} {:?}", stayed.moves, moved.moves);
        }
        assert!(fits(&moved.placement), "{policy}");
        let came = |placement: &Placement| SECOND.iter().filter(|region| ssd_bytes(placement, **region) > 0).count();
        if matches!(policy, PolicyName::Opt | PolicyName::H2dp) {
            assert!(came(&moved.placement) >= 3, "{policy}: {:?}", moved.moves);
        }
        for window in [&stayed, &moved] {
            for region in 0..REGIONS as u32 {
                let (was, is) = (first_on_ssds(), &window.placement);
                let listed = window.moves.iter().any(|one| one.region == RegionIndex(region));
                assert_eq!(was.layout_of(RegionIndex(region)) != is.layout_of(RegionIndex(region)), listed, "{policy}");
            }
        }
    }
}

/// A few requests more here and there are no reason to move anything.
#[test]
fn noise_moves_nothing() {
    let guess = guess(&[[0; 6], [0; 6]]);
    for policy in [PolicyName::Opt, PolicyName::H2dp] {
        let window = with_request(&guess.files, PlanOptions::default(), |request| {
            let how = OnlineStep { policy, windows: 1.0, length_s: Some(1.0) };
            let mut quiet = request.files.to_vec();
            for region in &mut quiet[0].windows[0].regions {
                region.counts.iter_mut().for_each(|(_, count)| *count = 1 + u64::from(region.region.0 == 2));
            }
            online_step_by(&PlanRequest { files: &quiet, ..request.clone() }, &how, &[first_on_ssds()])
                .unwrap()
                .remove(0)
        });
        assert_eq!(window.moves, [], "{policy}");
    }
}

#[test]
fn files_come_to_a_history_and_leave_it() {
    let mut history = history(&[FIRST]);
    history.add_file();
    let files = [window(FIRST), FileAccess { path: "/data/b".into(), ..window(SECOND) }];
    history.see(&files, 0);
    let both = history.guess(&files).unwrap();
    history.remove_file(0);
    let second = history.guess(&files[1..]).unwrap();
    assert_eq!((second.files.len(), &second.files[0].path), (1, &files[1].path));
    assert!(guessed_requests(&second, SECOND[0]) > 50 * guessed_requests(&second, FIRST[0]));
    assert!(both.is_like(&both) && !second.is_like(&both) && !second.is_like(&guess(&[FIRST])));
}

/// The hot set changes after so few requests that no copy of a region pays.
#[test]
fn where_moves_are_free_every_window_has_its_own_hot_set_on_ssds() {
    let mut file = window(FIRST);
    file.windows.push(window(SECOND).windows.remove(0));
    for (number, window) in file.windows.iter_mut().enumerate() {
        (window.start_s, window.end_s) = (600.0 * number as f64, 600.0 * (number + 1) as f64);
        window.regions.iter_mut().flat_map(|region| &mut region.counts).for_each(|(_, count)| *count /= 60);
    }
    let planned = |free_moves| -> [Placement; 2] {
        let options = PlanOptions { free_moves, ..PlanOptions::default() };
        let made =
            with_request(std::slice::from_ref(&file), options, |request| plan(PolicyName::Opt, request).unwrap());
        [0.0, 600.0].map(|start_s| made.files[0].placement_at(start_s).clone())
    };
    let [before, after] = planned(false);
    assert_eq!(before, after, "moves cost more than they gain");
    let placements = planned(true);
    assert!(placements.iter().all(fits));
    let on_ssds =
        |placement: &Placement, hot: [usize; 6]| hot.map(|region| ssd_bytes(placement, region)).iter().sum::<u64>();
    let [first, second] = &placements;
    assert!(on_ssds(first, FIRST) > on_ssds(first, SECOND), "{} {}", on_ssds(first, FIRST), on_ssds(first, SECOND));
    assert!(on_ssds(second, SECOND) > on_ssds(second, FIRST), "{} {}", on_ssds(second, SECOND), on_ssds(second, FIRST));
}
