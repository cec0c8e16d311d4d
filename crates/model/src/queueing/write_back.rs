//! What servers get of buffered writes: bytes that are written again go back once, and neighbours go back together.
//!
//! Between two write-backs the requests of a region cover a part of it. With u the share of a byte that nothing covers and w that of a
//! border between two requests which nothing covers on either side, 1 - 2u + w of the borders lie within a run of dirty bytes, and at
//! u - w of them a run begins. So a region of L bytes costs as much as (1 - 2u + w) writes of all of it and, of requests of r bytes,
//! (u - w) L / r writes of r that each begin a run: under every layout both have the same bytes on every server, L (1 - u) in all,
//! and the same number of runs. `docs/equations.md` derives it, and has the form for requests of several sizes.

use stripewise_layout::Order;

/// Requests of one size to one region, buffered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BufferedRequests {
    /// r.
    pub request_bytes: u64,
    /// Whether they follow each other; others go to places drawn independently.
    pub order: Order,
    /// How many.
    pub requests: f64,
    /// Share of the random ones that follow others nevertheless, 0 to 1: [`stripewise_trace::Company::adjoining`].
    pub adjoining: f64,
}

/// Writes that load the servers as much as what is written back of one region.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RegionWriteBack {
    /// Of the whole region, after a seek.
    pub whole: f64,
    /// Of the whole region, behind the one before.
    pub whole_in_order: f64,
    /// For each of the given classes, of its size and after a seek.
    pub requests: Vec<f64>,
    /// Share of the region that is dirty before each pass: 1 - u.
    pub dirty: f64,
    /// Passes.
    passes: f64,
}

impl RegionWriteBack {
    /// Of a region of `region_bytes`, written back `passes` times while the requests come.
    #[must_use]
    pub fn of(region_bytes: u64, classes: &[BufferedRequests], passes: f64) -> Self {
        // No more passes than requests: none writes back nothing.
        let most: f64 = classes.iter().map(|class| class.requests).sum();
        let passes = passes.clamp(1.0, most.max(1.0));
        let covered: Vec<Covered> = classes.iter().map(|class| Covered::by(region_bytes, class, passes)).collect();
        let mut ascending: Vec<usize> = (0..classes.len()).collect();
        ascending.sort_by_key(|number| classes[*number].request_bytes);
        let product = |of: fn(&Covered) -> f64| covered.iter().map(of).product::<f64>();
        let uncovered = product(|class| class.uncovered);
        let mut requests = vec![0.0; classes.len()];
        // Of the borders of one size, those of smaller sizes are borders too, and those of larger ones are not.
        let (mut smaller, mut larger, mut before) = (1.0, uncovered, uncovered);
        for number in ascending {
            let class = &covered[number];
            smaller *= class.uncovered_border;
            larger = if class.uncovered > 0.0 { larger / class.uncovered } else { 0.0 };
            // Both sides of a border cannot be uncovered less often than that; counts below 1 would have it so.
            let border = (smaller * larger).max(2.0 * uncovered - 1.0);
            requests[number] = passes * class.slots * (before - border).max(0.0);
            before = border;
        }
        let whole = passes * (1.0 - 2.0 * uncovered + before).max(0.0);
        let in_order = 1.0 - product(|class| class.uncovered_in_order);
        let share = if uncovered < 1.0 { (in_order / (1.0 - uncovered)).min(1.0) } else { 0.0 };
        let dirty = 1.0 - uncovered;
        Self { whole: whole * (1.0 - share), whole_in_order: whole * share, requests, dirty, passes }
    }

    /// Behind a region that lies before it on the same servers, a share of which is dirty: what begins this one goes on where that one ends.
    #[must_use]
    pub fn behind(mut self, dirty_before: f64) -> Self {
        let continuing = (self.passes * self.dirty * dirty_before).min(self.whole);
        self.whole -= continuing;
        self.whole_in_order += continuing;
        self
    }

    /// Bytes that reach the servers of a region, once each pass.
    #[must_use]
    pub fn bytes(&self, region_bytes: u64, classes: &[BufferedRequests]) -> f64 {
        let of_classes = classes.iter().zip(&self.requests).map(|(class, count)| class.request_bytes as f64 * count);
        (self.whole + self.whole_in_order) * region_bytes as f64 + of_classes.sum::<f64>()
    }
}

/// What the requests of one class leave of a region in one pass.
struct Covered {
    /// Places of the region that a request may have.
    slots: f64,
    /// Share of the bytes.
    uncovered: f64,
    /// Share of the borders between two places: neither side is covered.
    uncovered_border: f64,
    /// Share of the bytes that those in order leave.
    uncovered_in_order: f64,
}

impl Covered {
    fn by(region_bytes: u64, class: &BufferedRequests, passes: f64) -> Self {
        let slots = (region_bytes as f64 / class.request_bytes.max(1) as f64).max(1.0);
        let requests = class.requests / passes;
        let in_order = match class.order {
            Order::Sequential => 1.0,
            Order::Random => class.adjoining.clamp(0.0, 1.0),
        };
        let apart = requests * (1.0 - in_order);
        let not = |places: f64| {
            let by_one = (places / slots).min(1.0);
            // Of less than one request its share.
            if apart < 1.0 { 1.0 - apart * by_one } else { (1.0 - by_one).powf(apart) }
        };
        // One run of as many places as it has requests.
        let uncovered_in_order = (1.0 - requests * in_order / slots).max(0.0);
        let is_run = in_order > 0.0 && requests > 0.0;
        let begins = if is_run { ((slots - 2.0) / (slots - 1.0).max(1.0)).max(0.0) } else { 1.0 };
        Self {
            slots,
            uncovered: uncovered_in_order * not(1.0),
            uncovered_border: uncovered_in_order * begins * not(2.0),
            uncovered_in_order,
        }
    }
}
