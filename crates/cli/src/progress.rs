//! Signs of life for what takes longer than two seconds, on a terminal's standard error only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(2);

/// A bar over bytes; shows itself once two seconds have passed.
pub(crate) struct ByteProgress {
    bar: ProgressBar,
    started: Instant,
}

impl ByteProgress {
    pub(crate) fn new(total_bytes: u64, what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::hidden());
        let style =
            ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
        bar.set_style(style.expect("the template is valid"));
        bar.set_message(what.to_owned());
        Self { bar, started: Instant::now() }
    }

    pub(crate) fn set(&self, bytes: u64) {
        if self.bar.is_hidden() && self.started.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(bytes);
    }
}

impl Drop for ByteProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar over cases that several threads work through; shows itself once two seconds have passed.
pub(crate) struct CaseProgress {
    bar: ProgressBar,
    started: Instant,
}

impl CaseProgress {
    pub(crate) fn new(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} {bar:30} {pos} of {len} cases, {elapsed}");
        bar.set_style(style.expect("the template is valid"));
        bar.set_message(what.to_owned());
        Self { bar, started: Instant::now() }
    }

    /// So many more cases will come.
    pub(crate) fn expect(&self, cases: usize) {
        self.bar.inc_length(cases as u64);
        self.show();
    }

    pub(crate) fn one_done(&self) {
        self.bar.inc(1);
        self.show();
    }

    fn show(&self) {
        if self.bar.is_hidden() && self.started.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for CaseProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A turning wheel beside `what`, from two seconds on until it is dropped.
pub(crate) struct Waiting {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Waiting {
    pub(crate) fn start(what: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let what = what.to_owned();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let wheel = ProgressBar::new_spinner().with_message(what);
            wheel.enable_steady_tick(Duration::from_millis(120));
            let _ = stopped.recv();
            wheel.finish_and_clear();
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
