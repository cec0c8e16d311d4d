//! Moves that are ended: by errors of servers, full ones, and by what is done to the file meanwhile.
