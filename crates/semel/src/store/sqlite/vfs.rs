//! SQLite's own file layer, but for one thing: a write-ahead log that exists is opened as one that exists.
//!
//! SQLite always opens its log with "create", and then syncs the log's folder with the first commit of every
//! connection, in case the log was new. A command that opens the database on every run would pay a second sync
//! each time. Here the log is first opened without "create"; only where there is none it is made, and then SQLite
//! syncs the folder as before.
//!
//! The layer is registered under a name of its own: other users of SQLite in the process are not touched.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use rusqlite::ffi;

const NAME: &CStr = c"semel";

struct Base(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's default layer is a static of SQLite's, used by any thread.
unsafe impl Send for Base {}
// SAFETY: as above; it is only read here.
unsafe impl Sync for Base {}

static BASE: OnceLock<Option<Base>> = OnceLock::new();

/// The name to open a database with; `None` if the layer cannot be had, and SQLite's default must do.
pub(super) fn name() -> Option<&'static CStr> {
    BASE.get_or_init(register).as_ref().map(|_| NAME)
}

fn register() -> Option<Base> {
    // SAFETY: asks for the default layer, which is never freed; null is checked.
    let base = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    if base.is_null() {
        return None;
    }
    // SAFETY: not null, and a valid layer. A copy works: its functions look only at fields that are copied.
    let mut ours = Box::new(unsafe { *base });
    ours.zName = NAME.as_ptr();
    ours.pNext = std::ptr::null_mut();
    ours.xOpen = Some(open);
    // SAFETY: SQLite keeps the pointer for the life of the process, so it is leaked; it is not the default.
    let code = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(ours), 0) };
    (code == ffi::SQLITE_OK).then_some(Base(base))
}

unsafe extern "C" fn open(
    _ours: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(Base(base))) = BASE.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: `base` is SQLite's default layer.
    let Some(base_open) = (unsafe { (**base).xOpen }) else { return ffi::SQLITE_CANTOPEN };
    let name: *const c_char = name;
    let create = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_READWRITE;
    if flags & create == create {
        let mut opened = 0;
        // SAFETY: the arguments are SQLite's own, with one flag fewer and a place for the answer.
        let code = unsafe { base_open(*base, name, file, flags & !ffi::SQLITE_OPEN_CREATE, &mut opened) };
        if code == ffi::SQLITE_OK && opened & ffi::SQLITE_OPEN_READONLY == 0 {
            if !out_flags.is_null() {
                // SAFETY: not null, so it is SQLite's place for the answer.
                unsafe { *out_flags = opened };
            }
            return code;
        }
        if code == ffi::SQLITE_OK {
            // There was no log to write, and one to read a moment later: another process made it in between, and
            // SQLite fell back to reading. Asked for with "create", it is opened for writing.
            // SAFETY: the file is open.
            unsafe { close(file) };
        }
    }
    // SAFETY: the arguments are SQLite's own; nothing is open in `file`.
    unsafe { base_open(*base, name, file, flags, out_flags) }
}

/// # Safety
///
/// The file must have been opened by SQLite's own layer.
unsafe fn close(file: *mut ffi::sqlite3_file) {
    // SAFETY: an open file has its methods.
    if let Some(close) = unsafe { (*file).pMethods.as_ref() }.and_then(|methods| methods.xClose) {
        // SAFETY: it is closed once.
        unsafe { close(file) };
    }
}
