use core::fmt;

/// Why the library refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be written completely.
    Write,
    /// There is no such option, the value is out of range, or the option is read only at start.
    Option,
}

impl Error {
    /// Returns this error, unless the call succeeded.
    pub(crate) fn unless(self, succeeded: bool) -> Result<(), Self> {
        if succeeded {
            Ok(())
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Write => "hakmem could not write to the file",
            Self::Option => "hakmem has no such option, or not for this value or at this time",
        })
    }
}

impl core::error::Error for Error {}
