//! Events (`tracing`) as lines of text, of one form wherever they are written: `message field=value …`.
//!
//! A broker writes what it does into the log of its state directory, whoever runs it and whatever that one's subscriber is: [`Log`] holds a subscriber of
//! its own, under which its events are emitted ([`note`]), and which hands them on to the one that was in force when the broker was started.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use stripewise_store::state::StateDirectory;
use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event as a line.
#[derive(Debug, Default)]
pub struct Line {
    message: String,
    fields: String,
}

impl Line {
    /// The event's message and its fields, without its level.
    #[must_use]
    pub fn of(event: &Event<'_>) -> String {
        let mut line = Self::default();
        event.record(&mut line);
        line.message + &line.fields
    }

    fn add(&mut self, field: &Field, value: &str) {
        let is_word = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "=\"".contains(c));
        // Into a string nothing fails.
        let _ = match (field.name(), is_word) {
            ("message", _) => write!(self.message, "{value}"),
            (name, true) => write!(self.fields, " {name}={value}"),
            (name, false) => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

/// Where events go.
pub trait Sink: Send + Sync + 'static {
    /// Whether an event with this metadata is wanted.
    fn takes(&self, metadata: &Metadata<'_>) -> bool;

    /// Takes an event that is wanted.
    fn event(&self, event: &Event<'_>);
}

/// A subscriber of events alone; nobody here opens spans.
#[derive(Debug)]
pub struct EventsOnly<S>(pub S);

impl<S: Sink> Subscriber for EventsOnly<S> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.takes(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Writes events into the log of a state directory.
struct StateLog {
    state: Arc<StateDirectory>,
    outer: Dispatch,
}

impl Sink for StateLog {
    fn takes(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO || self.outer.enabled(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        if level <= Level::INFO {
            self.state.note(&format!("{level} {}", Line::of(event)));
        }
        if self.outer.enabled(event.metadata()) {
            self.outer.event(event);
        }
    }
}

/// Where a broker's events go.
pub(crate) struct Log(Dispatch);

impl Log {
    /// The log of this state directory, and the subscriber that is in force now.
    pub(crate) fn new(state: &Arc<StateDirectory>) -> Self {
        let outer = dispatcher::get_default(Clone::clone);
        Self(Dispatch::new(EventsOnly(StateLog { state: Arc::clone(state), outer })))
    }

    /// Runs what remembers the subscriber that is in force.
    pub(crate) fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        dispatcher::with_default(&self.0, run)
    }

    /// Runs what emits events; see [`note`].
    pub(crate) fn emit(&self, emit: impl FnOnce()) {
        dispatcher::with_default(&self.0, emit);
    }
}

/// Emits an event of a level into a [`Log`]: `note!(log, warn, path = %path, "what happened")`.
macro_rules! note {
    ($log:expr, $level:ident, $($event:tt)+) => {
        $log.emit(|| tracing::$level!(target: "stripewise::broker", $($event)+))
    };
}
pub(crate) use note;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Keeps the lines of all events.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Sink for Kept {
        fn takes(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(Line::of(event));
        }
    }

    #[test]
    fn an_event_is_a_line_of_the_log_and_goes_on_to_who_runs_the_broker() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state");
        let state = Arc::new(StateDirectory::make(&path).unwrap());
        let kept = Arc::new(Mutex::new(Vec::new()));
        let log = dispatcher::with_default(&Dispatch::new(EventsOnly(Kept(Arc::clone(&kept)))), || Log::new(&state));
        note!(log, info, server = "s0", "a server is drained");
        note!(log, warn, path = %"/a b=c", region = 7, error = %"full\nof it", "not described");
        note!(log, debug, "of no interest");
        let text = std::fs::read_to_string(path.join("log")).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
        let warning = r#"not described path="/a b=c" region=7 error="full\nof it""#;
        assert_eq!(lines, ["INFO a server is drained server=s0", &format!("WARN {warning}")]);
        assert_eq!(*kept.lock().unwrap(), [warning]);
    }
}
