//! What the command says, and the log: events (`tracing`) as lines of text, by the one subscriber of the process.
//!
//! Messages of the command itself are events of the target [`COMMAND`], at whatever level: lines on standard error in its name. Events of a broker in
//! this process are in the log of its state directory; they are shown here too if `STRIPEWISE_LOG` asks for their level, as in redirected programs.

use std::fs::File;
use std::io::Write as _;
use stripewise::messages::{self, EventsOnly, Line, Sink};
use stripewise_store::log_line::log_line;
use tracing::{Event, Level, Metadata};

/// Target of what the command says to the person who runs it.
pub(crate) const COMMAND: &str = "stripewise::command";

/// What `STRIPEWISE_LOG=LEVEL[:FILE]` asks for.
#[derive(Debug, Default)]
struct Wish {
    level: Option<Level>,
    file: Option<File>,
}

impl Wish {
    fn parse(text: &str) -> Result<Self, String> {
        let (level, path) = text.split_once(':').map_or((text, None), |(level, path)| (level, Some(path)));
        let level = match level {
            "error" => Level::ERROR,
            "warn" => Level::WARN,
            "info" => Level::INFO,
            "debug" => Level::DEBUG,
            _ => return Err(format!("STRIPEWISE_LOG is error, warn, info or debug, then perhaps :FILE; not {text}")),
        };
        let open = |path| {
            let opened = File::options().append(true).create(true).open(path);
            opened.map_err(|error| format!("cannot open the log {path}: {error}"))
        };
        Ok(Self { level: Some(level), file: path.map(open).transpose()? })
    }
}

/// The subscriber of a command with this name.
struct Lines {
    name: &'static str,
    wish: Wish,
}

impl Lines {
    fn is_wanted(&self, level: Level) -> bool {
        self.wish.level.is_some_and(|most| level <= most)
    }
}

impl Sink for Lines {
    fn takes(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == COMMAND || self.is_wanted(*metadata.level())
    }

    fn event(&self, event: &Event<'_>) {
        let (metadata, line) = (event.metadata(), Line::of(event));
        // Where a line cannot be written, nobody can be told so.
        let _ = if metadata.target() == COMMAND {
            std::io::stderr().write_all(format!("stripewise {}: {line}\n", self.name).as_bytes())
        } else {
            let (level, message) = (*metadata.level(), messages::message(&line));
            match &self.wish.file {
                Some(file) => (&*file).write_all(log_line(&format!("{level} {message}")).as_bytes()),
                None => {
                    let level = level.as_str().to_ascii_lowercase();
                    std::io::stderr().write_all(format!("stripewise {}: {level}: {message}\n", self.name).as_bytes())
                }
            }
        };
    }
}

/// To be called once, before anything is said.
pub(crate) fn start(name: &'static str) {
    let wish = std::env::var("STRIPEWISE_LOG").ok().map_or_else(|| Ok(Wish::default()), |text| Wish::parse(&text));
    let (wish, complaint) = match wish {
        Ok(wish) => (wish, None),
        Err(complaint) => (Wish::default(), Some(complaint)),
    };
    // It fails only where there is one already.
    let _ = tracing::subscriber::set_global_default(EventsOnly(Lines { name, wish }));
    if let Some(complaint) = complaint {
        tracing::warn!(target: COMMAND, "{}", messages::message(&complaint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_and_a_file_are_read_as_the_library_reads_them() {
        let wanted = |text: &str| Wish::parse(text).map(|wish| (wish.level, wish.file.is_some()));
        assert_eq!(wanted("warn").unwrap(), (Some(Level::WARN), false));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a:b");
        assert_eq!(wanted(&format!("debug:{}", path.display())).unwrap(), (Some(Level::DEBUG), true));
        assert!(path.exists());
        assert!(wanted("loud").unwrap_err().contains("not loud"));
        assert!(wanted("info:/nowhere/at/all").unwrap_err().contains("cannot open the log /nowhere/at/all"));
        let lines = Lines { name: "daemon", wish: Wish::parse("warn").unwrap() };
        assert!(lines.is_wanted(Level::ERROR) && lines.is_wanted(Level::WARN) && !lines.is_wanted(Level::INFO));
        assert!(!Lines { name: "daemon", wish: Wish::default() }.is_wanted(Level::ERROR));
    }
}
