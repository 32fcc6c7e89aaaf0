//! What execve is given: the program, its arguments, its environment, and where it runs.
//!
//! Theory. A keeper may not allocate, so the words lie ready as C strings and arrays of pointers to them. For a keeper
//! that is forked for one command they lie in the caller's memory, of which the fork has a copy. For one that stays
//! they lie in a [`Region`]: memory that both share, at the same address in both, since one is a fork of the other.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::spec::{SpawnError, Spec};

/// Pointers to NULL-terminated C strings, and to NULL-terminated arrays of such.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Words {
    pub(crate) program: *const c_char,
    pub(crate) argv: *const *const c_char,
    /// `/bin/sh FILE ARGS…`, for a file without a `#!` line.
    pub(crate) sh_argv: *const *const c_char,
    pub(crate) envp: *const *const c_char,
    /// NULL: where the keeper is.
    pub(crate) cwd: *const c_char,
}

/// Words in memory of their own.
pub(crate) struct OwnWords {
    words: Words,
    // The pointers point into these.
    _strings: Vec<CString>,
    _arrays: [Vec<*const c_char>; 3],
}

impl OwnWords {
    pub(crate) fn new(spec: &Spec) -> Result<OwnWords, SpawnError> {
        let mut strings = Vec::with_capacity(spec.argv.len() + spec.env.len() + 3);
        let mut keep = |text: CString| {
            let at = text.as_ptr();
            strings.push(text);
            at
        };
        let program = keep(c_string(spec.program.as_os_str())?);
        let mut argv = Vec::with_capacity(spec.argv.len() + 1);
        for word in &spec.argv {
            argv.push(keep(c_string(word)?));
        }
        let mut envp = Vec::with_capacity(spec.env.len() + 1);
        for (name, value) in &spec.env {
            envp.push(keep(c_string(&assignment(name, value))?));
        }
        let cwd = match &spec.cwd {
            Some(cwd) => keep(c_string(cwd.as_os_str())?),
            None => std::ptr::null(),
        };
        let mut sh_argv = vec![c"/bin/sh".as_ptr(), program];
        sh_argv.extend(argv.iter().skip(1));
        let mut arrays = [argv, sh_argv, envp];
        arrays.iter_mut().for_each(|array| array.push(std::ptr::null()));
        let [argv, sh_argv, envp] = &arrays;
        let words =
            Words { program, argv: argv.as_ptr(), sh_argv: sh_argv.as_ptr(), envp: envp.as_ptr(), cwd };
        Ok(OwnWords { words, _strings: strings, _arrays: arrays })
    }

    pub(crate) fn get(&self) -> &Words {
        &self.words
    }
}

pub(crate) fn c_string(text: &OsStr) -> Result<CString, SpawnError> {
    // A NUL inside: execve would cut the argument short, silently.
    CString::new(text.as_bytes()).map_err(|error| SpawnError::system("arguments", error.into()))
}

fn assignment(name: &OsStr, value: &OsStr) -> OsString {
    let mut text = OsString::with_capacity(name.len() + value.len() + 1);
    text.push(name);
    text.push("=");
    text.push(value);
    text
}

/// Memory shared with a keeper that stays. Only touched pages cost anything.
#[derive(Debug)]
pub(crate) struct Region {
    at: *mut u8,
}

/// Room for the words of a command; one with more gets a keeper of its own.
const ROOM: usize = 1 << 20;

// SAFETY: it is plain memory with one owner; `lay_out` needs it mutably.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn map() -> io::Result<Region> {
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, of nobody else's.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), ROOM, protection, kind, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Region { at: at.cast() }) }
    }

    /// Where the keeper finds the words.
    pub(crate) fn words(&self) -> *const Words {
        self.at.cast()
    }

    /// Lay out the words of this command. `false`: there is no room for them. The keeper must be idle.
    pub(crate) fn lay_out(&mut self, spec: &Spec) -> Result<bool, SpawnError> {
        let arrays = spec.argv.len().saturating_mul(2).saturating_add(spec.env.len()).saturating_add(4);
        let head = size_of::<Words>();
        let used = arrays.checked_mul(size_of::<*const c_char>()).and_then(|bytes| bytes.checked_add(head));
        let Some(used) = used.filter(|used| *used < ROOM) else { return Ok(false) };
        let mut cursor = Cursor { at: self.at, pointers: head, used, has_nul: false, is_full: false };
        let program = cursor.string(&[spec.program.as_os_str().as_bytes()]);
        let shell = cursor.string(&[b"/bin/sh"]);
        let cwd = match &spec.cwd {
            Some(cwd) => cursor.string(&[cwd.as_os_str().as_bytes()]),
            None => std::ptr::null(),
        };
        let argv = cursor.here();
        let mut words = Vec::with_capacity(spec.argv.len());
        for word in &spec.argv {
            let at = cursor.string(&[word.as_bytes()]);
            words.push(at);
            cursor.pointer(at);
        }
        cursor.pointer(std::ptr::null());
        let sh_argv = cursor.here();
        cursor.pointer(shell);
        cursor.pointer(program);
        words.iter().skip(1).for_each(|at| cursor.pointer(*at));
        cursor.pointer(std::ptr::null());
        let envp = cursor.here();
        for (name, value) in &spec.env {
            let at = cursor.string(&[name.as_bytes(), b"=", value.as_bytes()]);
            cursor.pointer(at);
        }
        cursor.pointer(std::ptr::null());
        if cursor.has_nul {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "nul byte found in provided data");
            return Err(SpawnError::system("arguments", why));
        }
        if cursor.is_full {
            return Ok(false);
        }
        // SAFETY: the head of the region is aligned, large enough, and read by nobody now.
        unsafe { self.at.cast::<Words>().write(Words { program, argv, sh_argv, envp, cwd }) };
        Ok(true)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is ours and nobody uses it any more; the keeper has a mapping of its own.
        unsafe { libc::munmap(self.at.cast(), ROOM) };
    }
}

/// Writes pointers and strings into a region.
struct Cursor {
    at: *mut u8,
    /// Where the next pointer goes: the caller has counted them.
    pointers: usize,
    /// Where the next string goes.
    used: usize,
    has_nul: bool,
    is_full: bool,
}

impl Cursor {
    fn string(&mut self, parts: &[&[u8]]) -> *const c_char {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.used.saturating_add(length) >= ROOM {
            self.is_full = true;
            return std::ptr::null();
        }
        // SAFETY: `used + length` and the NUL behind it are inside the region.
        unsafe {
            let start = self.at.add(self.used);
            let mut to = start;
            for part in parts {
                self.has_nul |= part.contains(&0);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
            to.write(0);
            self.used += length + 1;
            start.cast_const().cast()
        }
    }

    fn here(&self) -> *const *const c_char {
        // SAFETY: the place of a pointer is inside the region.
        unsafe { self.at.add(self.pointers).cast_const().cast() }
    }

    fn pointer(&mut self, to: *const c_char) {
        // SAFETY: as many as these were counted before the first string was written; all are aligned.
        unsafe { self.at.add(self.pointers).cast::<*const c_char>().write(to) };
        self.pointers += size_of::<*const c_char>();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::ffi::CStr;

    fn texts(mut array: *const *const c_char) -> Vec<String> {
        let mut found = Vec::new();
        unsafe {
            while !(*array).is_null() {
                found.push(CStr::from_ptr(*array).to_str().unwrap().to_owned());
                array = array.add(1);
            }
        }
        found
    }

    fn shown(words: &Words) -> [Vec<String>; 3] {
        [texts(words.argv), texts(words.sh_argv), texts(words.envp)]
    }

    #[test]
    fn the_same_words_lie_in_a_region_and_in_memory_of_their_own() {
        let mut spec = Spec::new("/bin/x", vec!["x".into(), "a b".into(), "".into()]);
        spec.env = vec![("A".into(), "1".into()), ("B".into(), "".into())];
        spec.cwd = Some("/tmp".into());
        let own = OwnWords::new(&spec).unwrap();
        let mut region = Region::map().unwrap();
        assert!(region.lay_out(&spec).unwrap());
        let shared = unsafe { &*region.words() };
        assert_eq!(shown(own.get()), shown(shared));
        assert_eq!(texts(shared.sh_argv), ["/bin/sh", "/bin/x", "a b", ""]);
        assert_eq!(texts(shared.envp), ["A=1", "B="]);
        assert_eq!(unsafe { CStr::from_ptr(shared.cwd) }, c"/tmp");
    }

    #[test]
    fn what_has_no_room_is_said_and_a_nul_is_refused() {
        let mut region = Region::map().unwrap();
        let mut spec = Spec::new("/bin/x", vec!["x".into(), "y".repeat(ROOM).into()]);
        assert!(!region.lay_out(&spec).unwrap());
        spec.argv = vec![OsString::new(); ROOM];
        assert!(!region.lay_out(&spec).unwrap());
        spec.argv = Vec::new();
        assert!(region.lay_out(&spec).unwrap());
        spec.argv = vec!["a\0b".into()];
        assert!(region.lay_out(&spec).is_err());
    }
}
