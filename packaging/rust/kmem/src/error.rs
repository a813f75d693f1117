// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call of the library says when it fails.

use std::fmt;
use std::io;

const EINVAL: i32 = 22;

/// A call of the library that failed, and the system's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    call: &'static str,
    errno: i32,
}

impl Error {
    /// The reason that the last call of this thread left.
    pub(crate) fn last(call: &'static str) -> Self {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Error { call, errno }
    }

    /// An argument that the library would refuse, or never see.
    pub(crate) fn invalid(call: &'static str) -> Self {
        let errno = EINVAL;
        Error { call, errno }
    }

    /// The number of the reason, like `ENOMEM` of C.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}: {}",
            self.call,
            io::Error::from_raw_os_error(self.errno)
        )
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::from_raw_os_error(error.errno)
    }
}
