//! What a fence says, and the rules that are about it alone.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use semel_core::name::Name;
use semel_core::token::{self, Grant, Nonce, Token};
use serde::{Deserialize, Serialize};

use super::error::{FileSinkError, Refusal, Refused, Spoilt};

/// The format that this version writes and reads.
const FORMAT: u32 = 1;

/// No fence is longer: it holds a name, two grants and a person's reason.
const LIMIT: u64 = 64 * 1024;

/// The fence of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// To which resource the file belongs. Tokens of two resources are counted apart and cannot be compared.
    pub resource: Name,
    /// The last grant that was accepted; `None` if a person gave the file to the resource and nobody wrote since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Grant>,
    /// The last time that a person set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Set>,
}

/// A person's word on a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// What it was set to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Grant>,
    /// Who.
    pub by: String,
    /// Why.
    pub because: String,
    /// When, by the wall clock, in milliseconds since 1970.
    pub at_ms: u64,
}

/// What a person wants a fence to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// To which resource the file belongs.
    pub resource: Name,
    /// The last token that counts as accepted: only larger ones pass. `None`: any passes.
    pub last: Option<Token>,
    /// Who says so.
    pub by: String,
    /// Why.
    pub because: String,
    /// Go back too, and replace a damaged fence. What an older holder writes then is accepted.
    pub back: bool,
}

/// A fence file, read.
#[derive(Debug)]
pub(super) enum Standing {
    /// Nothing was accepted yet.
    Open,
    /// This was.
    At(Fence),
    /// It cannot be known.
    Damaged(Spoilt),
}

/// The line in the file. A fence is made open, and filled under its lock.
#[derive(Serialize, Deserialize)]
struct Line<F> {
    v: u32,
    fence: Option<F>,
}

#[derive(Deserialize)]
struct Format {
    v: u64,
}

impl Standing {
    pub(super) fn read(path: &Path, file: &mut File) -> Result<Standing, FileSinkError> {
        let mut bytes = Vec::new();
        file.rewind()
            .and_then(|()| file.take(LIMIT + 1).read_to_end(&mut bytes))
            .map_err(|why| FileSinkError::io("cannot read the fence", path, &why))?;
        if bytes.len() as u64 > LIMIT {
            return Ok(Standing::Damaged(Spoilt::new(path, format!("it is longer than {LIMIT} bytes"))));
        }
        let damaged = |why: serde_json::Error| Standing::Damaged(Spoilt::new(path, why.to_string()));
        match serde_json::from_slice::<Format>(&bytes) {
            Err(why) => return Ok(damaged(why)),
            // not even a person replaces it with this version: it may mean what we do not know
            Ok(Format { v }) if v != u64::from(FORMAT) => {
                return Err(FileSinkError::Unusable(format!(
                    "{} was written by a newer Semel (format {v}, this one reads {FORMAT}): upgrade this one",
                    path.display()
                )));
            }
            Ok(_) => {}
        }
        Ok(match serde_json::from_slice::<Line<Fence>>(&bytes) {
            Err(why) => damaged(why),
            Ok(Line { fence: None, .. }) => Standing::Open,
            Ok(Line { fence: Some(fence), .. }) => Standing::At(fence),
        })
    }
}

/// The line of a fence; `None`: one that is open.
pub(super) fn line(fence: Option<&Fence>) -> Result<Vec<u8>, FileSinkError> {
    let mut line = serde_json::to_vec(&Line { v: FORMAT, fence })
        .map_err(|why| FileSinkError::Unusable(format!("the fence cannot be written: {why}")))?;
    line.push(b'\n');
    match line.len() as u64 {
        0..=LIMIT => Ok(line),
        _ => {
            Err(FileSinkError::Unusable("the reason is too long for the fence: say it in fewer words".into()))
        }
    }
}

impl Fence {
    /// Was the last grant put there by a person, rather than by a write?
    pub fn is_persons(&self) -> bool {
        self.set.as_ref().is_some_and(|set| set.to == self.last)
    }

    /// How this fence meets a grant: the fence that is to stand, `None` if it stays, or a refusal.
    pub(super) fn meet(
        stands: Option<&Fence>,
        target: &Path,
        resource: &Name,
        grant: &Grant,
    ) -> Result<Option<Fence>, FileSinkError> {
        let refuse = |why, fence: &Fence| {
            Err(FileSinkError::Refused(Box::new(Refused {
                target: target.to_owned(),
                resource: resource.clone(),
                grant: *grant,
                fence: fence.clone(),
                why,
            })))
        };
        if let Some(fence) = stands
            && fence.resource != *resource
        {
            return refuse(Refusal::OtherResource, fence);
        }
        let last = stands.and_then(|fence| fence.last.as_ref());
        match (grant.against(last), stands) {
            (token::Fence::Stale, Some(fence)) => refuse(Refusal::Stale, fence),
            (token::Fence::Clash, Some(fence)) => refuse(Refusal::Clash, fence),
            (token::Fence::Same, _) => Ok(None),
            (_, stands) => Ok(Some(Fence {
                resource: resource.clone(),
                last: Some(*grant),
                set: stands.and_then(|fence| fence.set.clone()),
            })),
        }
    }
}

impl Setting {
    /// The fence that this makes of what stands there. `nonce` is one that no grant has: a holder of the very token
    /// is kept out too.
    pub(super) fn apply(
        &self,
        target: &Path,
        stands: Standing,
        nonce: Nonce,
        at_ms: u64,
    ) -> Result<Fence, FileSinkError> {
        match stands {
            Standing::Damaged(why) if !self.back => return Err(why.into()),
            Standing::At(fence)
                if fence.resource == self.resource
                    && self.last < fence.last.map(|grant| grant.token)
                    && !self.back =>
            {
                return Err(FileSinkError::GoesBack { target: target.to_owned(), fence: Box::new(fence) });
            }
            _ => {}
        }
        let last = self.last.map(|token| Grant { token, nonce });
        let set = Set { to: last, by: self.by.clone(), because: self.because.clone(), at_ms };
        Ok(Fence { resource: self.resource.clone(), last, set: Some(set) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn grant(token: u64, nonce: u8) -> Grant {
        Grant { token: Token::new(token).unwrap(), nonce: Nonce::from_bytes([nonce; 16]) }
    }

    fn at(token: u64) -> Fence {
        Fence { resource: name("site"), last: Some(grant(token, 1)), set: None }
    }

    fn setting(resource: &str, last: u64, back: bool) -> Setting {
        let last = Token::new(last).ok();
        Setting { resource: name(resource), last, by: "anna".into(), because: "moved".into(), back }
    }

    fn applied(setting: &Setting, stands: Standing) -> Result<Fence, FileSinkError> {
        setting.apply(Path::new("/x"), stands, Nonce::from_bytes([9; 16]), 1)
    }

    #[test]
    fn a_grant_advances_passes_or_is_refused() {
        let meet = |stands: Option<&Fence>, resource, grant: Grant| {
            Fence::meet(stands, Path::new("/x"), &name(resource), &grant)
        };
        let why = |met: Result<Option<Fence>, FileSinkError>| match met {
            Err(FileSinkError::Refused(refused)) => refused.why,
            met => unreachable!("{met:?}"),
        };
        assert_eq!(meet(None, "site", grant(1, 1)).unwrap(), Some(at(1)));
        assert_eq!(meet(Some(&at(5)), "site", grant(6, 1)).unwrap(), Some(at(6)));
        assert_eq!(meet(Some(&at(5)), "site", grant(5, 1)).unwrap(), None);
        assert_eq!(why(meet(Some(&at(5)), "site", grant(4, 1))), Refusal::Stale);
        assert_eq!(why(meet(Some(&at(5)), "site", grant(5, 2))), Refusal::Clash);
        assert_eq!(why(meet(Some(&at(5)), "shop", grant(6, 1))), Refusal::OtherResource);
        let given = Fence { last: None, ..at(1) };
        assert_eq!(meet(Some(&given), "site", grant(1, 1)).unwrap(), Some(at(1)));
        assert_eq!(why(meet(Some(&given), "shop", grant(1, 1))), Refusal::OtherResource);
    }

    #[test]
    fn a_person_sets_it_forward_and_back_only_when_said_so() {
        let stands = || Standing::At(at(5));
        for forward in [5, 6] {
            let fence = applied(&setting("site", forward, false), stands()).unwrap();
            assert!(fence.is_persons() && fence.last == Some(grant(forward, 9)), "{fence:?}");
        }
        for back in [0, 1, 4] {
            let refused = applied(&setting("site", back, false), stands());
            assert!(matches!(refused, Err(FileSinkError::GoesBack { .. })), "{refused:?}");
            let fence = applied(&setting("site", back, true), stands()).unwrap();
            assert_eq!(fence.last.map_or(0, |grant| grant.token.value()), back);
        }
        assert_eq!(applied(&setting("shop", 1, false), stands()).unwrap().resource, name("shop"));
        assert!(applied(&setting("site", 1, false), Standing::Open).is_ok());
        let damaged = || Standing::Damaged(Spoilt::new(Path::new("/x.fence"), "torn".into()));
        assert!(applied(&setting("site", 9, false), damaged()).is_err());
        assert!(applied(&setting("site", 9, true), damaged()).is_ok());
        // the word stays on record when a write goes past it
        let set = applied(&setting("site", 6, false), stands()).unwrap();
        let after = Fence::meet(Some(&set), Path::new("/x"), &name("site"), &grant(7, 1)).unwrap().unwrap();
        assert!(!after.is_persons() && after.set == set.set);
    }

    #[test]
    fn whatever_stands_in_the_file_is_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &[u8]| {
            let path = folder.path().join("x.fence");
            std::fs::write(&path, text).unwrap();
            Standing::read(&path, &mut File::open(&path).unwrap())
        };
        let whole = line(Some(&at(5))).unwrap();
        assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(matches!(read(&whole).unwrap(), Standing::At(fence) if fence == at(5)));
        assert!(matches!(read(&line(None).unwrap()).unwrap(), Standing::Open));
        for end in 0..whole.len() - 1 {
            assert!(matches!(read(&whole[..end]).unwrap(), Standing::Damaged(_)), "cut at {end}");
        }
        for (text, part) in [
            (r#"{"v":1,"fence":{"resource":"a","last":{"token":0,"nonce":"00"}}}"#, "token"),
            (r#"{"v":1,"fence":{"resource":"../a"}}"#, "segment"),
            ("\0\0\0\0", "expected"),
            ("{\"v\":1}{\"v\":1}", "trailing"),
        ] {
            let Standing::Damaged(why) = read(text.as_bytes()).unwrap() else { unreachable!("{text}") };
            let why = FileSinkError::from(why).to_string();
            assert!(why.contains("damaged") && why.contains("semel fence set"), "{part}: {why}");
        }
        assert!(matches!(read(&vec![b' '; LIMIT as usize + 1]).unwrap(), Standing::Damaged(_)));
        let newer = read(br#"{"v":2,"anything":[]}"#).unwrap_err().to_string();
        assert!(newer.contains("newer Semel"), "{newer}");
    }
}
