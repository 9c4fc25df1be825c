//! The C library's functions that the layer replaces: each makes the system call, fails or delays
//! it as planted, and records it; a sync is only recorded, because the replay of the log decides
//! what is durable.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::OnceLock;

use libc::{iovec, mode_t, off_t, size_t, ssize_t, timespec};
use millrace_faults::control::Field;
use millrace_faults::log::RecordKind;

use crate::recorder::{Recorder, Tracked, recorder, tracked, untrack};
use crate::system::{self, call, fail};

const NANOS: i64 = 1_000_000_000;

fn int(result: c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

fn ssize(result: c_long) -> ssize_t {
    result as ssize_t
}

unsafe fn open_in(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let open = || unsafe { call!(SYS_openat, folder, path, flags, mode) };
    let Some(recorder) = recorder() else { return int(open()) };
    // Only these flags change the file. Without them the call does not hold the lock, because it may
    // wait long, such as for the other end of a pipe.
    let _order = (flags & (libc::O_CREAT | libc::O_TRUNC) != 0).then(|| recorder.lock_order());
    let is_new = flags & libc::O_CREAT != 0 && !system::exists(folder, path);
    let fd = int(open());
    if fd < 0 {
        return fd;
    }
    untrack(fd);
    if let Some(Tracked { inode, is_folder: false }) = recorder.track(fd) {
        if is_new || flags & libc::O_TMPFILE == libc::O_TMPFILE {
            recorder.record(RecordKind::Create, inode, 0, &[]);
        } else if flags & libc::O_TRUNC != 0 {
            recorder.record(RecordKind::Resize, inode, 0, &[]);
        }
    }
    fd
}

fn write_to(fd: c_int, bytes: &[u8], offset: Option<u64>) -> ssize_t {
    let write = |bytes: &[u8]| {
        // SAFETY: the bytes live until the call returns.
        unsafe {
            match offset {
                Some(offset) => call!(SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset),
                None => call!(SYS_write, fd, bytes.as_ptr(), bytes.len()),
            }
        }
    };
    let (Some(file), Some(recorder)) = (tracked(fd), recorder()) else { return ssize(write(bytes)) };
    let _order = recorder.lock_order();
    let bytes = match recorder.panel.admit(bytes.len()) {
        Ok(fits) => &bytes[..fits],
        Err(errno) => return ssize(fail(errno)),
    };
    let result = write(bytes);
    if let Ok(written) = usize::try_from(result) {
        let begin =
            offset.unwrap_or_else(|| system::position(fd, 0, libc::SEEK_CUR).saturating_sub(written as u64));
        recorder.record(RecordKind::Write, file.inode, begin, &bytes[..written]);
    }
    ssize(result)
}

unsafe fn slice<'a>(bytes: *const c_void, length: size_t) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}

unsafe fn joined(parts: *const iovec, count: c_int) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe {
            let part = &*parts.add(at);
            slice(part.iov_base, part.iov_len)
        });
    }
    bytes
}

/// Records that the bytes written before the sync began are durable; other calls continue while it lasts.
fn sync(fd: c_int, number: c_long) -> c_int {
    let (Some(file), Some(recorder)) = (tracked(fd), recorder()) else {
        // SAFETY: fsync and fdatasync have no pointers.
        return int(unsafe { libc::syscall(number, fd) });
    };
    let begun = recorder.lock_order();
    if file.is_folder {
        recorder.record_names_before_sync(fd, file.inode);
    }
    let log_bytes = recorder.log_bytes();
    let fails = recorder.panel.sync_fails();
    drop(begun);
    recorder.panel.delay_sync();
    let _order = recorder.lock_order();
    if fails {
        recorder.record(RecordKind::Lost, file.inode, log_bytes, &[]);
        return int(fail(libc::EIO));
    }
    if recorder.panel.get(Field::Lies) == 0 {
        recorder.record(RecordKind::Sync, file.inode, log_bytes, &[]);
    }
    0
}

fn resize(fd: c_int, length: off_t) -> c_int {
    // SAFETY: ftruncate has no pointers.
    let resize = || unsafe { call!(SYS_ftruncate, fd, length) };
    let (Some(file), Some(recorder)) = (tracked(fd), recorder()) else { return int(resize()) };
    let _order = recorder.lock_order();
    if let Err(errno) = recorder.panel.admit(0) {
        return int(fail(errno));
    }
    let result = resize();
    if result == 0 {
        recorder.record(RecordKind::Resize, file.inode, length.cast_unsigned(), &[]);
    }
    int(result)
}

unsafe fn make_folder(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let result = int(unsafe { call!(SYS_mkdirat, folder, path, mode) });
    if let (0, Some(recorder)) = (result, recorder()) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let _order = recorder.lock_order();
        // SAFETY: the caller's arguments, and a file that is closed once.
        unsafe {
            let fd = int(call!(SYS_openat, folder, path, flags));
            if let Some(made) = recorder.track(fd) {
                recorder.record(RecordKind::CreateFolder, made.inode, 0, &[]);
            }
            untrack(fd);
            call!(SYS_close, fd);
        }
    }
    result
}

fn duplicated(fd: c_int, second: c_int) -> c_int {
    if let (Some(recorder), true) = (recorder(), second >= 0) {
        recorder.track_duplicate(fd, second);
    }
    second
}

macro_rules! original {
    ($name:literal, $kind:ty) => {{
        static FOUND: OnceLock<usize> = OnceLock::new();
        // SAFETY: the name ends with a zero, and the C library has this function with this type.
        unsafe {
            let found = *FOUND.get_or_init(|| libc::dlsym(libc::RTLD_NEXT, $name.as_ptr()) as usize);
            (found != 0).then(|| std::mem::transmute::<usize, $kind>(found))
        }
    }};
}

fn shift(recorder: &Recorder, time: &mut timespec) {
    let nanos = recorder.panel.get(Field::ClockNanos).cast_signed();
    if nanos != 0 {
        recorder.panel.count(Field::ClockReads);
        let sum = time.tv_nsec + nanos % NANOS;
        time.tv_sec += nanos / NANOS + sum.div_euclid(NANOS);
        time.tv_nsec = sum.rem_euclid(NANOS);
    }
}

macro_rules! replace {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block)*) => {
        $(
            // SAFETY: the name is meant to replace the C library's, and the types are its own.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: the caller's arguments.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

replace! {
    // The C functions have a variable number of arguments, of which this is the only optional one.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_in(libc::AT_FDCWD, path, flags, mode) }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_in(libc::AT_FDCWD, path, flags, mode)
    }
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_in(folder, path, flags, mode)
    }
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_in(folder, path, flags, mode)
    }
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        open_in(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
    }
    fn close(fd: c_int) -> c_int {
        untrack(fd);
        int(call!(SYS_close, fd))
    }
    fn dup(fd: c_int) -> c_int { duplicated(fd, int(call!(SYS_dup, fd))) }
    fn dup2(fd: c_int, second: c_int) -> c_int {
        match fd == second {
            true if call!(SYS_fcntl, fd, libc::F_GETFD) >= 0 => second,
            true => -1,
            false => duplicated(fd, int(call!(SYS_dup3, fd, second, 0))),
        }
    }
    fn dup3(fd: c_int, second: c_int, flags: c_int) -> c_int {
        duplicated(fd, int(call!(SYS_dup3, fd, second, flags)))
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        let result = int(call!(SYS_fcntl, fd, command, argument));
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
            _ => result,
        }
    }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int { fcntl(fd, command, argument) }
    fn write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
        match tracked(fd) {
            Some(_) => write_to(fd, slice(bytes, length), None),
            None => ssize(call!(SYS_write, fd, bytes, length)),
        }
    }
    fn pwrite(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t {
        match tracked(fd) {
            Some(_) => write_to(fd, slice(bytes, length), Some(offset.cast_unsigned())),
            None => ssize(call!(SYS_pwrite64, fd, bytes, length, offset)),
        }
    }
    fn pwrite64(fd: c_int, bytes: *const c_void, length: size_t, offset: off_t) -> ssize_t {
        pwrite(fd, bytes, length, offset)
    }
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        match tracked(fd) {
            Some(_) => write_to(fd, &joined(parts, count), None),
            None => ssize(call!(SYS_writev, fd, parts, count)),
        }
    }
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        match tracked(fd) {
            Some(_) => write_to(fd, &joined(parts, count), Some(offset.cast_unsigned())),
            None => ssize(call!(SYS_pwritev, fd, parts, count, offset, 0)),
        }
    }
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        pwritev(fd, parts, count, offset)
    }
    fn ftruncate(fd: c_int, length: off_t) -> c_int { resize(fd, length) }
    fn ftruncate64(fd: c_int, length: off_t) -> c_int { resize(fd, length) }
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int { make_folder(libc::AT_FDCWD, path, mode) }
    fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int { make_folder(folder, path, mode) }
    fn fsync(fd: c_int) -> c_int { sync(fd, libc::SYS_fsync) }
    fn fdatasync(fd: c_int) -> c_int { sync(fd, libc::SYS_fdatasync) }
    fn clock_gettime(clock: libc::clockid_t, time: *mut timespec) -> c_int {
        type ClockGetTime = unsafe extern "C" fn(libc::clockid_t, *mut timespec) -> c_int;
        let result = match original!(c"clock_gettime", ClockGetTime) {
            Some(original) => original(clock, time),
            None => int(call!(SYS_clock_gettime, clock, time)),
        };
        let is_time_of_day = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
        if let (0, true, Some(recorder)) = (result, is_time_of_day, recorder()) {
            shift(recorder, &mut *time);
        }
        result
    }
    fn gettimeofday(time: *mut libc::timeval, _zone: *mut c_void) -> c_int {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        let result = clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        if !time.is_null() {
            *time = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 };
        }
        result
    }
    fn time(result: *mut libc::time_t) -> libc::time_t {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        if !result.is_null() {
            *result = now.tv_sec;
        }
        now.tv_sec
    }
}
