//! Input files that are read whole: regular files or pipes, within a stated size.

use crate::ByteCount;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

/// Longest `cluster.toml`.
pub const MAX_CLUSTER_BYTES: ByteCount = ByteCount(16 << 20);
/// Longest profile.
pub const MAX_PROFILE_BYTES: ByteCount = ByteCount(16 << 20);
/// Longest plan.
pub const MAX_PLAN_BYTES: ByteCount = ByteCount(512 << 20);
/// Longest manifest of a trace, results and the like.
pub const MAX_LIST_BYTES: ByteCount = ByteCount(64 << 20);
/// Longest file of a foreign trace that is read whole.
pub const MAX_TRACE_BYTES: ByteCount = ByteCount(4 << 30);

/// Longest line of a CSV trace.
pub const MAX_LINE_BYTES: ByteCount = ByteCount(1 << 20);

/// `O_NONBLOCK` of Linux on every architecture that Stripewise runs on: opening a FIFO then waits for nobody.
const NONBLOCK: i32 = 0o4000;
/// Read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How long to wait for a pipe that has nothing yet.
const PIPE_PAUSE: Duration = Duration::from_millis(1);

/// Opens `path`, which must be a regular file.
///
/// # Errors
///
/// `InvalidInput` if `path` is anything but a regular file, otherwise the error of opening it.
pub fn open_regular(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The text at `path`, a regular file or a pipe, of at most `max` bytes.
///
/// # Errors
///
/// As [`read`], and `InvalidData` if the bytes are not UTF-8.
pub fn read_text(path: &Path, max: ByteCount) -> Result<String> {
    let text = String::from_utf8(read(path, max)?);
    text.map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// The bytes at `path`, a regular file or a pipe, at most `max` of them.
///
/// # Errors
///
/// `FileTooLarge` beyond `max`, `InvalidInput` if `path` is neither a regular file nor a pipe,
/// `OutOfMemory` instead of an abort, otherwise the error of opening or reading.
pub fn read(path: &Path, max: ByteCount) -> Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let kind = found.file_type();
    if kind.is_file() && found.len() > max.0 {
        return Err(too_long(max));
    }
    if !kind.is_file() && !kind.is_fifo() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is neither a regular file nor a pipe"));
    }
    read_from(file, max)
}

/// What `file` has from here on, at most `max` bytes.
///
/// # Errors
///
/// `FileTooLarge` beyond `max`, `OutOfMemory` instead of an abort, otherwise the error of reading.
pub fn read_from(mut file: File, max: ByteCount) -> Result<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(length) if (bytes.len() + length) as u64 > max.0 => return Err(too_long(max)),
            Ok(length) => {
                // `read_to_end` ends the process where there is no memory.
                bytes.try_reserve(length).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
                bytes.extend_from_slice(&chunk[..length]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A pipe whose writer is slow.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PIPE_PAUSE),
            Err(error) => return Err(error),
        }
    }
}

fn too_long(max: ByteCount) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("it has more than {max}, the most that is read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// `/dev/zero` filled the memory, and a FIFO was waited for.
    #[test]
    fn what_never_ends_or_is_no_file_is_refused() {
        let refused = |path: &str| read_text(Path::new(path), ByteCount(1 << 20)).unwrap_err().to_string();
        assert_eq!(refused("/dev/zero"), "it is neither a regular file nor a pipe");
        assert_eq!(refused("/"), "it is neither a regular file nor a pipe");
        assert!(open_regular(Path::new("/dev/zero")).is_err());
        let directory = std::env::temp_dir().join(format!("stripewise-input-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, fifo) = (directory.join("file"), directory.join("fifo"));
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read_text(&file, ByteCount(5)).unwrap(), "12345");
        let said = read_text(&file, ByteCount(4)).unwrap_err().to_string();
        assert_eq!(said, "it has more than 4B, the most that is read");
        // Sparse, and longer than any memory: refused unread.
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_text(&file, ByteCount(1 << 30)).unwrap_err().kind(), ErrorKind::FileTooLarge);
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file, ByteCount(5)).unwrap_err().to_string(), "it is not UTF-8");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(read_text(&fifo, ByteCount(5)).unwrap(), "", "nobody writes there");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let endless = scope.spawn(|| {
                // A reader may have come and gone before the first byte.
                while !is_over.load(Ordering::SeqCst) {
                    let Ok(mut writer) = OpenOptions::new().write(true).open(&fifo) else { return };
                    while std::io::Write::write_all(&mut writer, &[b'x'; 4096]).is_ok() {}
                }
            });
            // Empty until the writer has come.
            let error = loop {
                match read_text(&fifo, ByteCount(1 << 20)) {
                    Ok(_) => std::thread::yield_now(),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            is_over.store(true, Ordering::SeqCst);
            // It may wait for a reader again.
            while !endless.is_finished() {
                let _ = read_text(&fifo, ByteCount(1 << 20));
            }
        });
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
