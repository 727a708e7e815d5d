use core::ffi::c_int;
use core::fmt;

extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Why the library refused: the C library's number of the error, as in `std::io::Error::from_raw_os_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    number: i32,
}

impl Error {
    /// The number, such as `EINVAL`.
    pub fn raw_os_error(self) -> i32 {
        self.number
    }

    /// Right after a call of the library that said whether it succeeded.
    pub(crate) fn unless(succeeded: bool) -> Result<(), Self> {
        if succeeded {
            return Ok(());
        }
        // SAFETY: the address of the calling thread's errno.
        Err(Self { number: unsafe { *__errno_location() } })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "hakmem: system error {}", self.number)
    }
}

impl core::error::Error for Error {}
