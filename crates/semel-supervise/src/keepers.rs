//! Keepers that stay, for those who start many commands, one after the other.
//!
//! Theory. A keeper is forked from a process that may be large: the page tables are copied, and whatever that process
//! writes next is copied too. So a keeper whose command has ended, and of whose tree nothing is left, is kept for the
//! next command. Every promise of a [`Tree`] holds as it does for a keeper of its own: the next command is not started
//! before nothing of the last is left; the death of this process ends the idle keepers as well.
//!
//! There are as many as commands were under way at once. The cgroup leaf belongs to the keeper, and is found empty
//! between two commands. A keeper whose command had to be killed, or left something behind that had to be, is not kept.

use std::sync::{Arc, Mutex, PoisonError};

use crate::spec::{Contain, Output, SpawnError, Spec, Stdin};
use crate::tree::Tree;

/// How often an idle keeper that somebody killed is replaced before it is said.
const TRIES: usize = 3;

/// Idle keepers. A clone shares them. When the last clone goes, so do they.
#[derive(Clone, Debug, Default)]
pub struct Keepers {
    idle: Arc<Mutex<Vec<(Kind, Tree)>>>,
}

/// What a keeper cannot change once it is forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    tag: String,
    contain: Contain,
}

impl Keepers {
    /// As [`Tree::start`]. For a command that writes where this process does, reads from a file or from nowhere, and is
    /// held by more than its process group; any other gets a keeper of its own.
    pub async fn start(&self, mut spec: Spec) -> Result<Tree, SpawnError> {
        let plain = matches!((&spec.stdout, &spec.stderr), (Output::Inherit, Output::Inherit))
            && matches!(spec.stdin, Stdin::Null | Stdin::Fd(_))
            && spec.contain != Contain::Group
            && cfg!(target_os = "linux");
        if !plain {
            return Tree::start(spec).await;
        }
        let kind = Kind { tag: spec.tag.clone(), contain: spec.contain };
        for _ in 0..TRIES {
            let mut tree = match self.take(&kind) {
                Some(tree) => tree,
                None => Tree::idle(blank(&spec))?,
            };
            match tree.lay_out(&spec) {
                Ok(true) => {}
                Ok(false) => {
                    self.put_back(kind, tree);
                    return Tree::start(spec).await;
                }
                Err(why) => {
                    self.put_back(kind, tree);
                    return Err(why);
                }
            }
            let stdin = match &spec.stdin {
                // sent, not given: it is still there for the next try
                Stdin::Fd(fd) => Some(fd.try_clone().map_err(|why| SpawnError::system("stdin", why))?),
                _ => None,
            };
            if tree.launch(spec.deadline, stdin).is_ok() {
                // what was sent is the keeper's by now
                spec.stdin = Stdin::Null;
                return tree.launched(self.clone(), kind, spec.program).await;
            }
            // it is no longer there: dropped, it is collected
        }
        Tree::start(spec).await
    }

    fn take(&self, kind: &Kind) -> Option<Tree> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().rposition(|(of, _)| of == kind)?;
        Some(idle.swap_remove(at).1)
    }

    pub(crate) fn put_back(&self, kind: Kind, tree: Tree) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((kind, tree));
    }
}

/// What a keeper must know before it knows of any command.
fn blank(spec: &Spec) -> Spec {
    let mut blank = Spec::new("", Vec::new());
    blank.stdin = Stdin::Null;
    blank.contain = spec.contain;
    blank.tag.clone_from(&spec.tag);
    blank
}
