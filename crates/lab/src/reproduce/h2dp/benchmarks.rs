//! Sections 5.2.2 and 5.2.3: HPIO and BTIO.

use super::schemes::{Moves, Testbed, bandwidths, gains, rows, schemes};
use super::windows::windowed;
use super::{DIRECTIONS, MIGRATION, SCALE, benchmark, direction_name};
use crate::reproduce::experiment::{Findings, Panel, Published, Setting, TestbedKind, Unit};
use crate::reproduce::run_log::Scale;
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction};
use stripewise_sim::Migration;
use stripewise_trace::Program;

pub(super) const SETUP_10: &str = "BTIO class D, subtype simple, written and read back, 12 HServers and 4 SServers with space for a sixth of the \
    file. 4 of the benchmark's 50 outputs (10.9 of 135.8 GB), which all do the same; bandwidth of writing and reading together. In one window and in 16, as figure 9.";
pub(super) const DISCUSSION_9: &str = "Reproduced for reads over PADP, in windows and with stripes as printed. With one placement for the whole run it is not: all processes march through \
    the file together and every region is accessed equally often, so selective placement has nothing to select, as the paper says itself. In 16 windows \
    that follow the march, with moves that are free, the whole of each window fits the SServers, and H2DP reads 166, 60 and 53 % faster than PADP with \
    regions of 64 KiB, 256 KiB and 1 MiB (91, 72 and 62 printed) and 150, 52 and 50 % faster than PSA (up to 41, 21 and 17). Writes lead PADP by 152, 18 \
    and 15 % (71, 70 and 67). DEF is another matter: its 64 KiB stripes make the least work for requests of 64 and 256 KiB, so that H2DP leads it by 22 to \
    69 % reading (111 to 192 printed), and writes of 256 KiB are 46 % slower. With stripes of 64 KiB or more PADP has DEF's bandwidth, and H2DP leads \
    neither by more than 27 %.";
pub(super) const DISCUSSION_10: &str = "With one placement for the whole run not reproduced, but for H2DP's lead over DEF with 4 processes, of which a tenth is found. Requests are rows of \
    cells of 2 to 8 KiB, at most two steps of the stripes, so PADP, PSA and H2DP arrive at the same small stripes, and what they differ in, which regions \
    lie on hybrid servers, does not matter to a benchmark that accesses all of them alike. In 16 windows that follow the outputs, with moves that are \
    free, each window's part of the file fits the SServers, and H2DP has four to six times DEF's bandwidth and 267 to 710 % over PADP, far more than the \
    92 to 137 and 25 to 48 % that are printed: moves that cost nothing are more than the paper can have had, and a placement that never moves less. In one \
    window `opt` is 2 to 15 % above DEF. In windows its plans know that moves are free; with 4 processes they are 14 % below H2DP's, with 64 processes \
    44 %.";

const SERVERS: (usize, usize) = (12, 4);
/// Which follow the march, with moves that are free.
const WINDOWS: u32 = 16;

/// Bandwidths of the program in one window, and on simulated servers in [`WINDOWS`] of them: on emulated ones each would be a run.
fn in_windows(setting: &Setting<'_>, testbed: Testbed, program: &dyn Program) -> Result<Vec<Vec<Option<f64>>>> {
    let lab = testbed.lab_for(setting, program, SERVERS)?;
    let mut found = vec![bandwidths(setting, &lab, program, Moves::AsSaid, MIGRATION)?];
    if setting.testbed == TestbedKind::Simulated {
        let in_windows = windowed(program, WINDOWS)?;
        found.push(bandwidths(setting, &lab, &in_windows, Moves::AsSaid, Migration::Free)?);
    }
    Ok(found)
}

/// What a panel and its rows are called.
fn named(name: &str, windows: usize) -> String {
    if windows == 0 { name.to_owned() } else { format!("{name}, {WINDOWS} windows") }
}

pub(super) fn figure_9(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    let sizes = [64 << 10, 256 << 10, 1 << 20].map(ByteCount);
    let cases: Vec<(Direction, ByteCount)> =
        DIRECTIONS.iter().flat_map(|direction| sizes.map(|size| (*direction, size))).collect();
    let figures = setting.map(&cases, |(direction, size)| {
        let op = direction_name(*direction);
        // 640 MiB, whatever the size of the regions.
        let scale = setting.scale(Scale { files: 64 * size.0 / sizes[0].0, ..SCALE });
        let count = 40_960 / scale.files;
        let text =
            format!("hpio:region_count={count},region_size={size},region_spacing=0,processes=16,nodes=16,op={op}");
        in_windows(setting, testbed, &*benchmark(&text)?)
    })?;
    let published: [[[f64; 3]; 2]; 3] = [
        [[192.0, 91.0, 41.0], [166.0, 71.0, 41.0]],
        [[136.0, 72.0, 21.0], [156.0, 70.0, 21.0]],
        [[111.0, 62.0, 17.0], [113.0, 67.0, 17.0]],
    ];
    let mut findings = Findings::default();
    for windows in 0..figures[0].len() {
        for (place, direction) in DIRECTIONS.into_iter().enumerate() {
            let name = direction_name(direction);
            let figures = figures[place * sizes.len()..].iter().map(|found| found[windows].clone());
            let groups = sizes.iter().map(ToString::to_string).zip(figures);
            let title = named(&format!("HPIO {name}"), windows);
            let panel = Panel::new(title, Unit::MbPerS, "region size", schemes(Moves::AsSaid), groups);
            for (size, published) in sizes.iter().zip(&published) {
                let [def, padp, psa] = published[place];
                // Over PSA the paper says "up to", of reads and writes together.
                let published = [Published::Value(def), Published::Value(padp), Published::UpTo(psa)];
                let case = named(&format!("{size} {name}"), windows);
                findings.rows.extend(gains(&panel, &case, &size.to_string(), published, Moves::AsSaid));
            }
            findings.panels.push(panel);
        }
    }
    Ok(findings)
}

pub(super) fn figure_10(setting: &Setting<'_>, testbed: Testbed) -> Result<Findings> {
    let processes = [4u32, 16, 64];
    let figures = setting.map(&processes, |processes| {
        let nodes = processes.min(&super::NODES);
        let program = benchmark(&format!(
            "btio:class=D,subtype=simple,time_steps=20,processes={processes},nodes={nodes},op=both"
        ))?;
        in_windows(setting, testbed, &*program)
    })?;
    let mut findings = Findings::default();
    for windows in 0..figures[0].len() {
        let groups = processes.iter().map(ToString::to_string).zip(figures.iter().map(|found| found[windows].clone()));
        let panel = Panel::new(named("BTIO", windows), Unit::MbPerS, "processes", schemes(Moves::AsSaid), groups);
        for (processes, [def, padp]) in processes.iter().zip([[137.0, 48.0], [105.0, 28.0], [92.0, 25.0]]) {
            let published = [Published::Value(def), Published::Value(padp), Published::NotPrinted];
            let case = named(&format!("{processes} processes"), windows);
            findings.rows.extend(gains(&panel, &case, &processes.to_string(), published, Moves::AsSaid));
        }
        let most = [Published::NotPrinted, Published::NotPrinted, Published::UpTo(19.0)];
        let case = named("all", windows);
        let most = rows(&case, most, Moves::AsSaid, |series, base| panel.most_gain_percent(series, base));
        findings.rows.extend(most.into_iter().filter(|row| row.published != Published::NotPrinted));
        findings.panels.push(panel);
    }
    Ok(findings)
}
