//! What the caller of a file sink may do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_core::name::Name;
use semel_core::token::Grant;

use super::record::Fence;

/// Why a file was not written, by what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileSinkError {
    /// The fence refused the grant: this holder was replaced, or a person must decide. Nothing was written.
    #[error("{0}")]
    Refused(Box<Refused>),
    /// A person's setting would let older holders in again. Nothing was changed.
    #[error(
        "{} stands at token {} of {}: a smaller one would let older holders write again, so nothing was changed; \
         if its store has lost its counter, and no older holder lives, say --back",
        .target.display(), token_of(.fence), .fence.resource
    )]
    GoesBack {
        /// The file.
        target: PathBuf,
        /// Its fence.
        fence: Box<Fence>,
    },
    /// Another writer had the lock for all that time: try again. Nothing was written.
    #[error(
        "{} was locked by another writer for {}: nothing was written; try again, or see who it is with: fuser -v {}",
        .fence.display(), seconds(.waited), shell_word(.fence)
    )]
    Busy {
        /// The fence.
        fence: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The path, or what lies there, is wrong: no retry helps, a person must change something. Nothing was written.
    #[error("{0}")]
    Unusable(String),
    /// The content could not be read to its end. Nothing was written.
    #[error("the content could not be read ({0}): nothing was written")]
    Source(io::Error),
    /// The system did not do it, now. Nothing was written: it may be tried again.
    #[error("{0}")]
    Failed(String),
    /// The file was replaced, but whether that survives a power cut is not known: write again.
    #[error("{} was replaced, but its folder could not be synced ({why}): write it again", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
}

/// A grant that a fence refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The file.
    pub target: PathBuf,
    /// The resource that the grant is of.
    pub resource: Name,
    /// The grant.
    pub grant: Grant,
    /// The fence as it stands.
    pub fence: Fence,
    /// What is wrong with the grant.
    pub why: Refusal,
}

/// Why a fence refuses a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A newer holder has written.
    Stale,
    /// Another grant with the same token was accepted. An alarm: a store gave one token twice, unless a person set
    /// the fence ([`Fence::is_persons`]).
    Clash,
    /// The file belongs to another resource.
    OtherResource,
}

impl Refusal {
    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::Stale => "stale",
            Refusal::Clash => "clash",
            Refusal::OtherResource => "other_resource",
        }
    }
}

impl Refused {
    /// Is it an alarm, rather than a late holder: were two told that they are the one?
    pub fn is_alarm(&self) -> bool {
        self.why == Refusal::Clash && !self.fence.is_persons()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { target, resource, grant, fence, why } = self;
        let (target_shown, token, last) = (target.display(), grant.token, token_of(fence));
        let by = fence.set.as_ref().map_or("somebody", |set| &set.by);
        match why {
            Refusal::Stale if fence.is_persons() => write!(
                f,
                "{target_shown} refused token {token} of {resource}: {by} set its fence to {last}, so only larger \
                 ones pass; nothing was written; stop this holder, and acquire the lease anew"
            ),
            Refusal::Stale => write!(
                f,
                "{target_shown} refused token {token} of {resource}: token {last} wrote last; nothing was written; \
                 this holder was replaced: stop it, the newer one goes on"
            ),
            Refusal::Clash if fence.is_persons() => write!(
                f,
                "{target_shown} refused token {token} of {resource}: {by} set its fence to {last}, so only larger \
                 ones pass; nothing was written; acquire the lease anew"
            ),
            Refusal::Clash => write!(
                f,
                "ALARM: {target_shown} refused token {token} of {resource}: another holder with the same token wrote \
                 last; nothing was written; the store gave one token twice: stop both, and check it with: semel doctor"
            ),
            Refusal::OtherResource => write!(
                f,
                "{target_shown} belongs to {} (its last token was {last}), and tokens of {resource} cannot be \
                 compared with that; nothing was written; to give it to {resource}: semel fence set {} --resource \
                 {resource} --token {} --because TEXT",
                fence.resource,
                shell_word(target),
                token.value() - 1,
            ),
        }
    }
}

/// A fence that cannot be read.
#[derive(Debug)]
pub(super) struct Spoilt {
    fence: PathBuf,
    why: String,
}

impl Spoilt {
    pub(super) fn new(fence: &Path, why: String) -> Spoilt {
        Spoilt { fence: fence.to_owned(), why }
    }
}

impl From<Spoilt> for FileSinkError {
    fn from(Spoilt { fence, why }: Spoilt) -> FileSinkError {
        let target = fence.with_extension("");
        FileSinkError::Unusable(format!(
            "{} is damaged ({why}), so what was accepted last is not known: nothing was written; restore it, or find \
             the last token (semel lease show RESOURCE) and say: semel fence set {} --resource RESOURCE --token N \
             --back --because TEXT",
            fence.display(),
            shell_word(&target),
        ))
    }
}

impl FileSinkError {
    /// What the system refused to do, by whether a retry may help.
    pub(super) fn io(what: &str, path: &Path, why: &io::Error) -> FileSinkError {
        use io::ErrorKind as Kind;
        let path = path.display();
        match why.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => FileSinkError::Failed(format!(
                "the disk is full: {what} {path} ({why}); nothing was written; free some space"
            )),
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => FileSinkError::Unusable(format!(
                "{what} {path} ({why}): nothing was written; check the owner and the mode of it and of its folder"
            )),
            _ => FileSinkError::Failed(format!("{what} {path} ({why}): nothing was written")),
        }
    }
}

fn token_of(fence: &Fence) -> u64 {
    fence.last.map_or(0, |grant| grant.token.value())
}

fn seconds(time: &Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

/// A path as one word of a shell.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@');
    if text.chars().all(plain) && !text.starts_with('-') {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        for (path, word) in [
            ("/srv/site/index.html", "/srv/site/index.html"),
            ("/a b", "'/a b'"),
            ("/it's", r"'/it'\''s'"),
            ("/a$(x)", "'/a$(x)'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
