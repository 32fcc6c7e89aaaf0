//! Program lookup, as a shell does it.
//!
//! A name with a slash is taken as it is; any other is searched in `path`. The first regular file that may be
//! executed wins. If there is a file of that name but none may be executed, the error says so (126, not 127).
//! The answer is a hint about the future: `execve` has the last word, and its error is reported the same way.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::spec::SpawnError;

/// What a shell searches when PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Find `program` in `path` (colon-separated; `None`: a default). Relative results are taken from `cwd`, where
/// the command will run; `None`: from where the caller is.
pub fn resolve(program: &OsStr, path: Option<&OsStr>, cwd: Option<&Path>) -> Result<PathBuf, SpawnError> {
    let not_found = || SpawnError::NotFound { program: PathBuf::from(program) };
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_bytes().contains(&b'/') {
        let found = in_cwd(Path::new(program), cwd);
        return match check(&found) {
            Ok(()) => Ok(found),
            Err(source) if is_absent(&source) => Err(not_found()),
            Err(source) => Err(SpawnError::CannotExecute { program: PathBuf::from(program), source }),
        };
    }
    let mut refused = None;
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    for dir in path.as_bytes().split(|byte| *byte == b':') {
        // POSIX: an empty element is the current directory.
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let candidate = in_cwd(&dir.join(program), cwd);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(source) if is_absent(&source) => {}
            Err(source) => refused = refused.or(Some((candidate, source))),
        }
    }
    match refused {
        Some((program, source)) => Err(SpawnError::CannotExecute { program, source }),
        None => Err(not_found()),
    }
}

fn in_cwd(path: &Path, cwd: Option<&Path>) -> PathBuf {
    match cwd {
        Some(cwd) if path.is_relative() => cwd.join(path),
        _ => path.to_path_buf(),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn check(path: &Path) -> io::Result<()> {
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    // AT_EACCESS: execve asks for the effective user, access(2) for the real one.
    // SAFETY: `path` is a valid C string for the duration of the call.
    let refused = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    if refused != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_first_executable_file_of_the_path_wins() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(a.path(), "tool", 0o644);
        let good = file(b.path(), "tool", 0o755);
        let path = format!("/nowhere:{}:{}", a.path().display(), b.path().display());
        assert_eq!(resolve("tool".as_ref(), Some(path.as_ref()), None).unwrap(), good);
    }

    #[test]
    fn found_but_not_executable_is_126_and_absent_is_127() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "tool", 0o644);
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let path = Some(dir.path().as_os_str());
        let code = |name: &str| resolve(name.as_ref(), path, None).unwrap_err().exit_code();
        assert_eq!(code("tool"), Some(126));
        assert_eq!(code("folder"), Some(126));
        assert_eq!(code("nothing"), Some(127));
        assert_eq!(code("./nothing"), Some(127));
        assert_eq!(code(""), Some(127));
        assert_eq!(code(dir.path().join("tool").to_str().unwrap()), Some(126));
    }

    #[test]
    fn a_relative_name_is_taken_from_where_the_command_will_run() {
        let dir = tempfile::tempdir().unwrap();
        let good = file(dir.path(), "tool", 0o755);
        assert_eq!(resolve("./tool".as_ref(), None, Some(dir.path())).unwrap(), dir.path().join("./tool"));
        assert_eq!(
            resolve("tool".as_ref(), Some("".as_ref()), Some(dir.path())).unwrap(),
            dir.path().join("./tool")
        );
        assert!(good.exists());
    }
}
