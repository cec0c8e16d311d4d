//! By when a thread wants the calls that it makes of servers to be over, whatever patience each has: others wait for all of them together.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

thread_local! {
    static OF_THREAD: Cell<Option<Deadline>> = const { Cell::new(None) };
}

/// For so long calls are begun, and those under way are given up a while later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    last_begin: Instant,
    end: Instant,
}

impl Deadline {
    /// So long after `since` all calls are over. In the last quarter none begins: a call that is given up at once would count as one of a server that does not answer.
    #[must_use]
    pub fn new(since: Instant, total: Duration) -> Self {
        Self { last_begin: since + total / 4 * 3, end: since + total }
    }

    /// That of this thread, for one that works for it.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        OF_THREAD.get()
    }

    /// Holds for this thread until what is returned is dropped; `None`: nothing does.
    #[must_use]
    pub fn hold(deadline: Option<Self>) -> Holding {
        Holding { before: OF_THREAD.replace(deadline), of_thread: PhantomData }
    }

    /// Whether no call begins any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.last_begin
    }

    /// For how long a call is waited for that began then.
    #[must_use]
    pub fn patience_since(&self, begun: Instant) -> Duration {
        self.end.saturating_duration_since(begun)
    }
}

/// See [`Deadline::hold`].
#[derive(Debug)]
pub struct Holding {
    before: Option<Deadline>,
    of_thread: PhantomData<*const ()>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        OF_THREAD.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_holds_for_its_thread_and_as_long_as_it_is_wanted() {
        let (now, long) = (Instant::now(), Duration::from_secs(1 << 20));
        let (outer, inner) = (Deadline::new(now, long), Deadline::new(now, long * 2));
        {
            let _outer = Deadline::hold(Some(outer));
            {
                let _inner = Deadline::hold(Some(inner));
                assert_eq!(Deadline::of_this_thread(), Some(inner));
            }
            assert_eq!(Deadline::of_this_thread(), Some(outer));
            std::thread::scope(|scope| scope.spawn(|| assert_eq!(Deadline::of_this_thread(), None)).join().unwrap());
        }
        assert_eq!(Deadline::of_this_thread(), None);
        assert!(!outer.is_over());
        assert_eq!(outer.patience_since(now + long / 4), long - long / 4);
        let past = Deadline::new(now, Duration::ZERO);
        assert!(past.is_over() && past.patience_since(Instant::now()).is_zero());
    }
}
