//! System calls that the layer makes itself; they set `errno` as the C library does.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

pub(crate) fn fail(errno: c_int) -> c_long {
    // SAFETY: the C library gives each thread a valid address.
    unsafe { *libc::__errno_location() = errno };
    -1
}

macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}
pub(crate) use call;

pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null() && *value != 0).then(|| CStr::from_ptr(value))
    }
}

pub(crate) fn open(path: &CStr, flags: c_int) -> Option<c_int> {
    // SAFETY: the path ends with a zero.
    let file = unsafe { call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    c_int::try_from(file).ok().filter(|file| *file >= 0)
}

/// Inode number, and whether it is a folder; `None` if it is neither a file nor a folder.
pub(crate) fn identity(fd: c_int) -> Option<(u64, bool)> {
    // SAFETY: a zeroed `stat` is valid, and the kernel fills it.
    let (found, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (call!(SYS_fstat, fd, &raw mut stat), stat)
    };
    let kind = stat.st_mode & libc::S_IFMT;
    (found == 0 && (kind == libc::S_IFREG || kind == libc::S_IFDIR))
        .then_some((stat.st_ino, kind == libc::S_IFDIR))
}

/// Returns the length of the path, or 0 if it is unknown; allocates nothing, because it runs within
/// a call of the program.
pub(crate) fn path_of(fd: c_int, path: &mut [u8]) -> usize {
    let mut link = [0_u8; 32];
    let text = b"/proc/self/fd/";
    link[..text.len()].copy_from_slice(text);
    let mut digits = [0_u8; 10];
    let mut count = 0;
    let mut rest = fd.unsigned_abs();
    while rest > 0 || count == 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    for at in 0..count {
        link[text.len() + at] = digits[count - 1 - at];
    }
    // SAFETY: the link ends with a zero, and the kernel writes at most the given length.
    let length =
        unsafe { call!(SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), path.len()) };
    usize::try_from(length).unwrap_or(0)
}

pub(crate) fn exists(folder: c_int, path: *const c_char) -> bool {
    // SAFETY: the program passed this path to a call with the same requirements.
    unsafe { call!(SYS_faccessat, folder, path, libc::F_OK) == 0 }
}

pub(crate) fn position(fd: c_int, offset: i64, whence: c_int) -> u64 {
    // SAFETY: the call takes no pointers.
    u64::try_from(unsafe { call!(SYS_lseek, fd, offset, whence) }).unwrap_or(0)
}

pub(crate) fn map(fd: c_int, bytes: usize) -> Option<*mut c_void> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses a free address.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
    (place != libc::MAP_FAILED).then_some(place)
}

pub(crate) fn pause_micros(micros: u64) {
    let time = libc::timespec {
        tv_sec: (micros / 1_000_000).cast_signed(),
        tv_nsec: (micros % 1_000_000 * 1_000).cast_signed(),
    };
    // SAFETY: the time is valid, and nothing is written back.
    unsafe { call!(SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>()) };
}
