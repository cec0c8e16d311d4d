//! The calls that a trace can hold: one table from which codes, printed names, levels and operations come.
//!
//! The code of a call is the first byte of its record, so a code once given is never given to another call; 0 means "nothing written
//! here" and codes from 0xF0 belong to the format's own records.

/// Which interface the program called. MPI-IO records lie above the POSIX records of the calls that the MPI library made for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The C library: descriptors, streams, asynchronous I/O.
    Posix,
    /// `MPI_File_*`.
    MpiIo,
}

impl Level {
    /// As printed in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::MpiIo => "mpi-io",
        }
    }
}

/// What a call does to its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Opens a file that is there; also one whose making is not known.
    Open,
    /// Opens a file and makes it: an open whose record has
    /// [`RawEvent::created`](crate::RawEvent::created).
    Create,
    /// Closes a descriptor, a stream or an MPI file.
    Close,
    /// Moves bytes of the file to the program.
    Read,
    /// Moves bytes of the program to the file.
    Write,
    /// Asks that what was written be durable, or, of a stream's buffer, handed to the kernel.
    Sync,
    /// Sets the length.
    Truncate,
    /// Reserves space.
    Allocate,
    /// Removes a name.
    Unlink,
    /// Gives the file another name.
    Rename,
    /// Maps the file into memory; the accesses through it leave no records.
    Map,
    /// Sets the file pointer.
    Seek,
    /// Sets the view of an MPI file: which of its bytes a process sees.
    View,
    /// Sets the flags of a descriptor, on which the class of its writes depends.
    SetFlags,
}

impl Operation {
    /// As printed in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Close => "close",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Map => "map",
            Self::Seek => "seek",
            Self::View => "view",
            Self::SetFlags => "flags",
        }
    }

    /// Whether bytes of the file move: reads and writes.
    #[must_use]
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

macro_rules! calls {
    ($($code:literal $variant:ident $name:literal $level:ident $operation:ident;)*) => {
        /// A traced call. Twins that differ in name only (`open64`, `__open_2`, `MPI_File_read_at_c`, Fortran entry points) share one.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Call {
            $(#[doc = concat!("`", $name, "`")] $variant = $code,)*
        }

        impl Call {
            /// Every call, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The call of a record's first byte; none for 0, the format's own records and codes of later versions.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name as the C interface has it; unique.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The interface that the call belongs to.
            #[must_use]
            pub const fn level(self) -> Level {
                match self {
                    $(Self::$variant => Level::$level,)*
                }
            }

            /// What the call does; an open that created its file is told apart by a flag of the record.
            #[must_use]
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$variant => Operation::$operation,)*
                }
            }
        }
    };
}

calls! {
    1 Open "open" Posix Open;
    2 Openat "openat" Posix Open;
    3 Creat "creat" Posix Open;
    4 Close "close" Posix Close;
    5 Read "read" Posix Read;
    6 Pread "pread" Posix Read;
    7 Readv "readv" Posix Read;
    8 Preadv "preadv" Posix Read;
    9 Preadv2 "preadv2" Posix Read;
    10 Write "write" Posix Write;
    11 Pwrite "pwrite" Posix Write;
    12 Writev "writev" Posix Write;
    13 Pwritev "pwritev" Posix Write;
    14 Pwritev2 "pwritev2" Posix Write;
    15 Fsync "fsync" Posix Sync;
    16 Fdatasync "fdatasync" Posix Sync;
    17 SyncFileRange "sync_file_range" Posix Sync;
    18 Msync "msync" Posix Sync;
    19 Ftruncate "ftruncate" Posix Truncate;
    20 Truncate "truncate" Posix Truncate;
    21 Fallocate "fallocate" Posix Allocate;
    22 PosixFallocate "posix_fallocate" Posix Allocate;
    23 Unlink "unlink" Posix Unlink;
    24 Rename "rename" Posix Rename;
    25 Mmap "mmap" Posix Map;
    26 Lseek "lseek" Posix Seek;
    27 Fopen "fopen" Posix Open;
    28 Fclose "fclose" Posix Close;
    29 Fread "fread" Posix Read;
    30 Fwrite "fwrite" Posix Write;
    31 Fflush "fflush" Posix Sync;
    32 AioRead "aio_read" Posix Read;
    33 AioWrite "aio_write" Posix Write;
    34 AioFsync "aio_fsync" Posix Sync;
    35 LioRead "lio_listio:read" Posix Read;
    36 LioWrite "lio_listio:write" Posix Write;
    37 CopyFileRangeRead "copy_file_range:read" Posix Read;
    38 CopyFileRangeWrite "copy_file_range:write" Posix Write;
    39 SendfileRead "sendfile:read" Posix Read;
    40 SendfileWrite "sendfile:write" Posix Write;
    41 SpliceRead "splice:read" Posix Read;
    42 SpliceWrite "splice:write" Posix Write;
    43 SetFlags "fcntl:F_SETFL" Posix SetFlags;

    128 MpiOpen "MPI_File_open" MpiIo Open;
    129 MpiClose "MPI_File_close" MpiIo Close;
    130 MpiDelete "MPI_File_delete" MpiIo Unlink;
    131 MpiSetSize "MPI_File_set_size" MpiIo Truncate;
    132 MpiPreallocate "MPI_File_preallocate" MpiIo Allocate;
    133 MpiSync "MPI_File_sync" MpiIo Sync;
    134 MpiSetView "MPI_File_set_view" MpiIo View;
    135 MpiSeek "MPI_File_seek" MpiIo Seek;
    136 MpiSeekShared "MPI_File_seek_shared" MpiIo Seek;
    137 MpiRead "MPI_File_read" MpiIo Read;
    138 MpiReadAll "MPI_File_read_all" MpiIo Read;
    139 MpiReadAt "MPI_File_read_at" MpiIo Read;
    140 MpiReadAtAll "MPI_File_read_at_all" MpiIo Read;
    141 MpiReadShared "MPI_File_read_shared" MpiIo Read;
    142 MpiReadOrdered "MPI_File_read_ordered" MpiIo Read;
    143 MpiReadAllBegin "MPI_File_read_all_begin" MpiIo Read;
    144 MpiReadAtAllBegin "MPI_File_read_at_all_begin" MpiIo Read;
    145 MpiReadOrderedBegin "MPI_File_read_ordered_begin" MpiIo Read;
    146 MpiIread "MPI_File_iread" MpiIo Read;
    147 MpiIreadAll "MPI_File_iread_all" MpiIo Read;
    148 MpiIreadAt "MPI_File_iread_at" MpiIo Read;
    149 MpiIreadAtAll "MPI_File_iread_at_all" MpiIo Read;
    150 MpiIreadShared "MPI_File_iread_shared" MpiIo Read;
    160 MpiWrite "MPI_File_write" MpiIo Write;
    161 MpiWriteAll "MPI_File_write_all" MpiIo Write;
    162 MpiWriteAt "MPI_File_write_at" MpiIo Write;
    163 MpiWriteAtAll "MPI_File_write_at_all" MpiIo Write;
    164 MpiWriteShared "MPI_File_write_shared" MpiIo Write;
    165 MpiWriteOrdered "MPI_File_write_ordered" MpiIo Write;
    166 MpiWriteAllBegin "MPI_File_write_all_begin" MpiIo Write;
    167 MpiWriteAtAllBegin "MPI_File_write_at_all_begin" MpiIo Write;
    168 MpiWriteOrderedBegin "MPI_File_write_ordered_begin" MpiIo Write;
    169 MpiIwrite "MPI_File_iwrite" MpiIo Write;
    170 MpiIwriteAll "MPI_File_iwrite_all" MpiIo Write;
    171 MpiIwriteAt "MPI_File_iwrite_at" MpiIo Write;
    172 MpiIwriteAtAll "MPI_File_iwrite_at_all" MpiIo Write;
    173 MpiIwriteShared "MPI_File_iwrite_shared" MpiIo Write;
}

impl Call {
    /// The code stored in records.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The call of that [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_and_names_are_unique_and_found_again() {
        let names: BTreeSet<_> = Call::ALL.iter().map(|call| call.name()).collect();
        assert_eq!(names.len(), Call::ALL.len());
        for call in Call::ALL {
            assert_eq!(Call::from_code(call.code()), Some(*call));
            assert_eq!(Call::from_name(call.name()), Some(*call));
            assert_eq!(call.level() == Level::MpiIo, call.name().starts_with("MPI_"), "{}", call.name());
            assert!((1..0xF0).contains(&call.code()));
        }
        assert!(Call::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
        assert_eq!(Call::from_code(0), None);
    }
}
