//! What a refusal says of an error.

use super::Refusal;
use crate::server::ServerError;
use crate::shared::control::ControlError;
use crate::state::StateError;

/// There is no space for `what` in the state directory.
#[must_use]
pub fn state_full(what: &str) -> Refusal {
    let what = format!("the file system of the state directory is full and has no space for {what}; free some there");
    Refusal::NoSpace { what }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::LayoutsFull { .. } | ControlError::TooManyRegions { .. } => {
                Refusal::TooLarge { what: error.to_string() }
            }
            ControlError::Os(errno) if StateError::is_full(errno) => state_full("a file's layouts"),
            ControlError::NotAControlBlock | ControlError::OtherVersion { .. } | ControlError::Os(_) => {
                Refusal::Table { what: error.to_string() }
            }
        }
    }
}

impl From<ServerError> for Refusal {
    fn from(error: ServerError) -> Self {
        (&error).into()
    }
}

impl From<&ServerError> for Refusal {
    fn from(error: &ServerError) -> Self {
        let what = error.to_string();
        match error {
            ServerError::NoSpace { .. } => Refusal::NoSpace { what },
            ServerError::Missing { server, .. }
            | ServerError::Exists { server, .. }
            | ServerError::Unusable { server, .. }
            | ServerError::NotAnswering { server, .. }
            | ServerError::Denied { server }
            | ServerError::Os { server, .. } => Refusal::Server { server: server.clone(), what },
        }
    }
}
