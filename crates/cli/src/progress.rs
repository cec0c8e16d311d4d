//! What operations report, for a person at a terminal: messages on standard error, and signs of life for what takes longer than two seconds.

use crate::log::COMMAND;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use stripewise::messages;
use stripewise::progress::{Amount, Progress, Task};

const PATIENCE: Duration = Duration::from_secs(2);

/// The terminal of a command.
pub(crate) struct Terminal;

impl Progress for Terminal {
    fn say(&self, message: &str) {
        tracing::info!(target: COMMAND, "{}", messages::message(message));
    }

    fn begin(&self, what: &str, amount: Amount) -> Box<dyn Task> {
        match amount {
            Amount::Unknown => Box::new(Wheel::start(what)),
            Amount::Bytes(total) => {
                let style = "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
                Box::new(Bar::new(total, style, what))
            }
            Amount::Share => {
                let style = "{msg} {bar:40} {percent:>3} %  {elapsed} of about {duration}";
                Box::new(Bar::new(1000, style, what))
            }
            Amount::Cases => Box::new(Bar::new(0, "{msg} {bar:30} {pos} of {len} cases, {elapsed}", what)),
        }
    }
}

/// Shows itself once two seconds have passed.
struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    fn new(total: u64, style: &str, what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
        bar.set_message(what.to_owned());
        Self { bar, started: Instant::now() }
    }

    fn show(&self) {
        if self.bar.is_hidden() && self.started.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Task for Bar {
    fn set(&self, done: u64) {
        self.show();
        self.bar.set_position(done);
    }

    fn expect(&self, more: usize) {
        self.bar.inc_length(more as u64);
        self.show();
    }

    fn one_done(&self) {
        self.bar.inc(1);
        self.show();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A turning wheel, from two seconds on until it is dropped.
struct Wheel {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Wheel {
    fn start(what: &str) -> Self {
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

impl Task for Wheel {
    fn set(&self, _: u64) {}
    fn expect(&self, _: usize) {}
    fn one_done(&self) {}
}

impl Drop for Wheel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
