//! Which turn of its cycle a region begins at: regions that load few servers are dealt to those with the least work so far.
//!
//! The program counts the mean load of a kind's servers. A region that fills few cycles loads some of them more than others, whole regions one
//! alone. Dealt in order of heat, the first server would get the hottest region of every round. Dealt the longest first, each to where the least
//! work is (Graham, SIAM J. Applied Mathematics 17(2), 1969), servers of a kind end up with loads that differ by less than the least region's.

use super::program::Program;
use super::turning::{left_over_turns, turned, without_empty};
use std::collections::HashMap;
use stripewise_layout::Layout;

/// Regions of so many cycles load all servers of the cycle nearly alike: their turns go round.
const EVEN_CYCLES: u64 = 4;

/// Seconds that a region asks of one server's stations, by period: device, link, ..
type Seconds = Vec<f64>;

/// One turn of a shape for regions of one size.
struct Turn {
    layout: Layout,
    /// Servers with bytes of the region, and the share of the bytes of the server's kind that lie there.
    parts: Vec<(usize, f64)>,
}

/// All turns of a shape for regions of one size, and how many of them a region takes beyond whole cycles.
struct Turns {
    turns: Vec<Turn>,
    step: usize,
    is_even: bool,
}

/// The work of one window that is dealt already.
pub(super) struct Dealer<'a> {
    program: &'a Program,
    window: usize,
    kind_of: &'a [usize],
    /// Periods of the window.
    periods: Vec<usize>,
    /// By server and then as [`Seconds`].
    work_s: Vec<Seconds>,
    /// By shape and bytes of a region.
    turns: HashMap<(usize, u64), Turns>,
    /// By shape: where the next region of equal choices begins.
    next: Vec<usize>,
}

impl<'a> Dealer<'a> {
    pub(super) fn new(program: &'a Program, window: usize, kind_of: &'a [usize]) -> Self {
        let periods: Vec<usize> = program.periods_of(window).collect();
        let work_s = vec![vec![0.0; 2 * periods.len()]; kind_of.len()];
        let next = vec![0; program.shapes.len()];
        Self { program, window, kind_of, periods, work_s, turns: HashMap::new(), next }
    }

    /// Seconds of the longest station that an option of an item loads, on all servers of the kind together.
    pub(super) fn length_s(&self, item: usize, option: u16) -> f64 {
        let seconds = self.of_kinds(item, option);
        seconds.iter().flatten().copied().fold(0.0, f64::max)
    }

    /// The layout of a region, begun at the turn with the least work of those that fit; `fits` books what it accepts.
    pub(super) fn deal(
        &mut self,
        item: usize,
        option: u16,
        bytes: u64,
        mut fits: impl FnMut(&Layout) -> bool,
    ) -> Option<Layout> {
        let shape = self.program.shape(item, option);
        let seconds = self.of_kinds(item, option);
        let layout = &self.program.shapes[shape].layout;
        let known = self.turns.entry((shape, bytes)).or_insert_with(|| Turns::of(layout, bytes, self.kind_of));
        let (count, first) = (known.turns.len(), self.next[shape]);
        let mut order: Vec<(f64, usize)> = (0..count)
            .map(|attempt| (first + attempt) % count)
            .map(|turn| (known.turns[turn].work_s(&self.work_s, &seconds, self.kind_of), turn))
            .collect();
        if !known.is_even {
            // Stable: of equal ones the next in turn.
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let turn = order.into_iter().map(|(_, turn)| turn).find(|turn| fits(&known.turns[*turn].layout))?;
        self.next[shape] = (turn + known.step) % count;
        let chosen = &known.turns[turn];
        if !known.is_even {
            chosen.add(&mut self.work_s, &seconds, self.kind_of);
        }
        Some(chosen.layout.clone())
    }

    /// Counts a region that lies somewhere already.
    pub(super) fn keep(&mut self, item: usize, option: u16, layout: &Layout, bytes: u64) {
        let seconds = self.of_kinds(item, option);
        Turn::of(layout.clone(), bytes, self.kind_of).add(&mut self.work_s, &seconds, self.kind_of);
    }

    /// By kind: what one region of an item asks of all servers of the kind together.
    fn of_kinds(&self, item: usize, option: u16) -> Vec<Seconds> {
        let of_item = &self.program.items[item];
        let load_s = self.program.load_s(item, option, self.window);
        let regions = of_item.regions.len() as f64;
        let of_kind = |(number, kind): (usize, &super::kinds::Kind)| -> Seconds {
            let servers = kind.servers.len() as f64;
            let station =
                |row: usize, period: &usize| f64::from(load_s[row]) * servers * of_item.shares[*period] / regions;
            let rows = [2 * number, 2 * number + 1];
            self.periods.iter().flat_map(|period| rows.map(|row| station(row, period))).collect()
        };
        self.program.kinds.iter().enumerate().map(of_kind).collect()
    }
}

impl Turns {
    fn of(layout: &Layout, bytes: u64, kind_of: &[usize]) -> Self {
        let (count, step) = (layout.stripes().len(), left_over_turns(layout, bytes));
        let tries = if step == 0 { 1 } else { count };
        let turn = |turn: usize| Turn::of(without_empty(turned(layout, turn), bytes), bytes, kind_of);
        let is_even = bytes >= EVEN_CYCLES * layout.view().cycle_bytes();
        Self { turns: (0..tries).map(turn).collect(), step, is_even }
    }
}

impl Turn {
    fn of(layout: Layout, bytes: u64, kind_of: &[usize]) -> Self {
        let view = layout.view();
        let own: Vec<(usize, f64)> = layout
            .stripes()
            .iter()
            .enumerate()
            .map(|(turn, stripe)| (usize::from(stripe.server.0), view.object_bytes(turn, bytes) as f64))
            .filter(|(_, bytes)| *bytes > 0.0)
            .collect();
        let of_kind = |kind: usize| -> f64 {
            own.iter().filter(|(server, _)| kind_of[*server] == kind).map(|(_, bytes)| bytes).sum()
        };
        let parts = own.iter().map(|(server, bytes)| (*server, bytes / of_kind(kind_of[*server]))).collect();
        Self { layout, parts }
    }

    /// By how much the sum of squares of all work would grow, but for what is the same in all turns.
    fn work_s(&self, work_s: &[Seconds], of_kinds: &[Seconds], kind_of: &[usize]) -> f64 {
        let part = |(server, share): &(usize, f64)| -> f64 {
            let stations = work_s[*server].iter().zip(&of_kinds[kind_of[*server]]);
            stations.map(|(known_s, more_s)| share * more_s * (known_s + share * more_s / 2.0)).sum()
        };
        self.parts.iter().map(part).sum()
    }

    fn add(&self, work_s: &mut [Seconds], of_kinds: &[Seconds], kind_of: &[usize]) {
        for (server, share) in &self.parts {
            let stations = work_s[*server].iter_mut().zip(&of_kinds[kind_of[*server]]);
            stations.for_each(|(known_s, more_s)| *known_s += share * more_s);
        }
    }
}
