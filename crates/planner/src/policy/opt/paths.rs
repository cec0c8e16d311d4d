//! What the items answer to prices: the path of least priced cost of each, by a dynamic program over the windows.

use super::program::{Assignment, Program};
use rayon::prelude::*;

/// Of a second on each row of each period, of a byte on each server of a kind in each window; fixed parts cost what they are.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Prices {
    pub(crate) rows: Vec<f64>,
    pub(crate) capacity: Vec<f64>,
    /// Price of latency beside its rows; 0 for the bound.
    pub(crate) haste: f64,
}

/// The prices as one item sees them in one window.
struct Seen {
    rows: Vec<f64>,
    moves: Vec<f64>,
}

impl Program {
    fn seen(&self, item: usize, window: usize, prices: &Prices) -> Seen {
        let mut seen = Seen { rows: vec![0.0; self.rows], moves: vec![0.0; self.rows] };
        for period in self.periods_of(window) {
            let (own, share) = (self.items[item].shares[period], self.period_share(period));
            for row in 0..self.rows {
                let price = prices.rows[period * self.rows + row];
                seen.rows[row] += own * price;
                seen.moves[row] += share * price;
            }
        }
        seen.rows[self.rows - 1] += prices.haste;
        seen
    }

    fn priced_option_s(&self, item: usize, option: u16, window: usize, seen: &Seen, prices: &Prices) -> f64 {
        let load_s = self.load_s(item, option, window);
        let stations: f64 = load_s.iter().zip(&seen.rows).map(|(load, price)| f64::from(*load) * price).sum();
        let kinds = self.kinds.len();
        let share = &self.shapes[self.shape(item, option)].capacity_share;
        let capacity: f64 =
            share.iter().zip(&prices.capacity[window * kinds..]).map(|(share, price)| share * price).sum();
        stations + capacity * self.items[item].bytes() + self.fixed_s(item, option, window)
    }

    /// What an option costs in a window at these prices, without moves.
    pub(crate) fn priced_s(&self, item: usize, option: u16, window: usize, prices: &Prices) -> f64 {
        self.priced_option_s(item, option, window, &self.seen(item, window, prices), prices)
    }

    /// What a path costs at these prices, moves included.
    pub(crate) fn priced_path_s(&self, item: usize, path: &[u16], prices: &Prices) -> f64 {
        let mut previous = self.before(item);
        let mut sum_s = 0.0;
        for (window, option) in path.iter().enumerate() {
            let seen = self.seen(item, window, prices);
            sum_s += self.priced_option_s(item, *option, window, &seen, prices);
            if let Some(from) = previous.filter(|previous| previous != option) {
                sum_s += self.priced_move_s(item, from, *option, &seen);
            }
            previous = Some(*option);
        }
        sum_s
    }

    fn priced_move_s(&self, item: usize, from: u16, to: u16, seen: &Seen) -> f64 {
        let (read, write) = (self.read_s(self.shape(item, from)), self.write_s(self.shape(item, to)));
        self.items[item].bytes() * (dot(read, &seen.moves) + dot(write, &seen.moves))
    }

    /// The path of least priced cost over options whose shapes are allowed (all, where none is), and its cost.
    pub(crate) fn best_path(&self, item: usize, prices: &Prices, allowed: &[bool]) -> (f64, Vec<u16>) {
        let before = self.before(item);
        let mut open: Vec<u16> =
            (0..self.options(item) as u16).filter(|option| allowed[self.shape(item, *option)]).collect();
        if open.is_empty() {
            open = (0..self.options(item) as u16).collect();
        }
        let bytes = self.items[item].bytes();
        let mut costs: Vec<f64> = Vec::new();
        // For each window and open option the option before it.
        let mut origins: Vec<Vec<usize>> = Vec::new();
        for window in 0..self.windows {
            let seen = self.seen(item, window, prices);
            let own = |option: &u16| self.priced_option_s(item, *option, window, &seen, prices);
            if window == 0 {
                costs = open
                    .iter()
                    .map(|option| {
                        let moved = before.filter(|before| before != option);
                        own(option) + moved.map_or(0.0, |from| self.priced_move_s(item, from, *option, &seen))
                    })
                    .collect();
                continue;
            }
            let reading = |option: u16| bytes * dot(self.read_s(self.shape(item, option)), &seen.moves);
            let left = (0..open.len()).map(|from| (costs[from] + reading(open[from]), from));
            let (leave_s, origin) = left.min_by(|a, b| a.0.total_cmp(&b.0)).expect("an item has options");
            let mut of_window = Vec::with_capacity(open.len());
            costs = open
                .iter()
                .enumerate()
                .map(|(number, option)| {
                    let moved_s = leave_s + bytes * dot(self.write_s(self.shape(item, *option)), &seen.moves);
                    let stays = costs[number] <= moved_s;
                    of_window.push(if stays { number } else { origin });
                    own(option) + costs[number].min(moved_s)
                })
                .collect();
            origins.push(of_window);
        }
        let (mut at, cost_s) = costs
            .iter()
            .copied()
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("an item has options and a run has windows");
        let mut path = vec![open[at]; self.windows];
        for window in (1..self.windows).rev() {
            at = origins[window - 1][at];
            path[window - 1] = open[at];
        }
        (cost_s, path)
    }

    /// Every item's best path at these prices.
    pub(crate) fn respond(&self, prices: &Prices, allowed: &[bool]) -> Assignment {
        if !self.has_moves() {
            return self.sum(self.answers(prices, allowed));
        }
        let paths: Vec<Vec<u16>> = (0..self.items.len())
            .into_par_iter()
            .with_min_len(256)
            .map(|item| self.best_path(item, prices, allowed).1)
            .collect();
        self.sum(paths.concat())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
