//! The handle on a running command and all that descends from it.
//!
//! Theory. The keeper tells, this side listens: `Exited` when the command itself has ended, `Gone` when nothing
//! of its tree is left. A socket that closes without `Gone` means that the keeper died, and then this side ends
//! the tree itself. Whatever has been heard is kept in the handle, so every waiting method may be cancelled and
//! called again.
//!
//! Not guaranteed: that [`Tree::stop`] returns. It waits for what cannot be killed, because to say "stopped"
//! would be a lie; who cannot wait puts a limit around it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use crate::cgroup::Leaf;
use crate::clock::sleep_boottime;
use crate::heap;
use crate::keeper;
use crate::keepers::{Keepers, Kind};
use crate::orphans;
use crate::plan::Plan;
use crate::process::Process;
use crate::spec::{Containment, SpawnError, Spec};
use crate::sys;
use crate::wire::{Inbox, News, Order, Received, send_with_fd};
use crate::words::Region;

/// How the command itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    fn from_status(status: i32) -> Exit {
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }

    /// The code a shell reports: the command's own, or 128 + the signal.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signo) => signo.saturating_add(128),
        }
    }
}

/// The end of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// `None`: the keeper died first. The command is dead, how it ended is unknown.
    pub exit: Option<Exit>,
    /// The keeper ended it because the deadline passed.
    pub by_deadline: bool,
}

/// What was left when the command had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes that outlived the command and had to be ended. Not known (0) if the keeper died.
    pub count: u32,
    /// The keeper ended them because the deadline passed.
    pub by_deadline: bool,
    /// The keeper died before it could tell.
    pub keeper_died: bool,
}

/// A running command and its descendants. Dropping it kills them all.
#[derive(Debug)]
pub struct Tree {
    pid: i32,
    keeper: Process,
    containment: Containment,
    shares_terminal: bool,
    leaf: Option<Leaf>,
    /// `None` only while being dropped.
    socket: Option<AsyncFd<OwnedFd>>,
    inbox: Inbox,
    ended: Option<Ended>,
    gone: Option<Leftovers>,
    reaped: bool,
    /// What the words of the next command are laid out in, if the keeper stays.
    region: Option<Region>,
    /// The keeper said that it stays.
    stays: bool,
    /// Where a keeper that stays is put back, and what it is known by there.
    home: Option<(Keepers, Kind)>,
}

impl Tree {
    /// Start it. Blocks until the exec has succeeded or failed.
    ///
    /// Must be called inside a tokio runtime with I/O enabled. Makes this process a child subreaper.
    pub fn spawn(spec: Spec) -> Result<Tree, SpawnError> {
        let (tree, ours, program) = Tree::fork(spec, None, Fork::Whole)?;
        tree.first_word(ours, program)
    }

    /// Wait for the keeper's first word, and for nothing else.
    fn first_word(mut self, ours: OwnedFd, program: PathBuf) -> Result<Tree, SpawnError> {
        let news = match self.inbox.receive(ours.as_raw_fd()) {
            Received::Message(bytes) => News::decode(bytes),
            Received::Nothing | Received::Closed => None,
        };
        match news {
            Some(News::Started { .. }) => self.watch(ours)?,
            _ => drop(ours),
        }
        self.started(news, program)
    }

    /// As [`spawn`](Tree::spawn), but others get the thread until the exec has succeeded or failed: for those who start
    /// many. Whoever drops the future ends what was started.
    pub async fn start(spec: Spec) -> Result<Tree, SpawnError> {
        let (mut tree, ours, program) = Tree::fork(spec, None, Fork::Whole)?;
        tree.watch(ours)?;
        let news = tree.receive().await;
        tree.started(news, program)
    }

    /// A keeper that stays, with nothing to do yet: of what it is to run only the descriptors, the tag and the
    /// containment matter.
    pub(crate) fn idle(spec: Spec) -> Result<Tree, SpawnError> {
        let region = Region::map().map_err(|error| SpawnError::system("mmap", error))?;
        let (mut tree, ours, _) = Tree::fork(spec, Some(region), Fork::Stays)?;
        tree.watch(ours)?;
        Ok(tree)
    }

    /// Lay the words of this command before the idle keeper. `false`: there is no room for them.
    pub(crate) fn lay_out(&mut self, spec: &Spec) -> Result<bool, SpawnError> {
        self.region.as_mut().map_or(Ok(false), |region| region.lay_out(spec))
    }

    /// Have the idle keeper start what was laid before it. An error means that it is no longer there.
    pub(crate) fn launch(&mut self, deadline: Option<Duration>, stdin: Option<OwnedFd>) -> io::Result<()> {
        let order = Order::Launch(deadline.map_or(0, crate::clock::nanos));
        match (&self.socket, stdin) {
            (Some(socket), Some(fd)) => send_with_fd(socket.as_raw_fd(), &order.encode(), fd.as_raw_fd()),
            _ => self.order(order),
        }
    }

    /// Wait for the keeper's first word about it; whatever comes of it, the keeper goes back to where it came from.
    pub(crate) async fn launched(
        mut self,
        home: Keepers,
        kind: Kind,
        program: PathBuf,
    ) -> Result<Tree, SpawnError> {
        let news = self.receive().await;
        if let Some(News::Failed { stage, errno }) = news {
            home.put_back(kind, self);
            return Err(explain(stage, errno, program));
        }
        self.home = Some((home, kind));
        self.started(news, program)
    }

    /// Fork the keeper. From here on, dropping our end of its socket makes it end everything.
    fn fork(spec: Spec, region: Option<Region>, how: Fork) -> Result<(Tree, OwnedFd, PathBuf), SpawnError> {
        tokio::runtime::Handle::try_current()
            .map_err(|error| SpawnError::system("runtime", io::Error::other(error)))?;
        let program = spec.program.clone();
        let (ours, theirs) = sys::socketpair().map_err(|error| SpawnError::system("socketpair", error))?;
        let mut plan = Plan::new(spec)?;
        plan.shared = region.as_ref().map(Region::words);
        plan.stays = how == Fork::Stays;
        if !plan.group_only {
            sys::become_subreaper();
        }
        let keeper = match fork_keeper(&plan, theirs.as_raw_fd(), how) {
            Ok(keeper) => keeper,
            Err(error) => {
                plan.leaf.as_ref().map(Leaf::remove);
                return Err(SpawnError::system("fork", error));
            }
        };
        let tree = Tree {
            pid: 0,
            keeper,
            containment: if plan.group_only { Containment::Group } else { Containment::Subreaper },
            shares_terminal: plan.joins_group,
            leaf: plan.leaf.take(),
            socket: None,
            inbox: Inbox::default(),
            ended: None,
            gone: None,
            reaped: false,
            region,
            stays: false,
            home: None,
        };
        Ok((tree, ours, program))
    }

    fn watch(&mut self, ours: OwnedFd) -> Result<(), SpawnError> {
        let socket = sys::set_nonblocking(ours.as_raw_fd()).and_then(|()| sys::watch(ours));
        self.socket = Some(socket.map_err(|error| SpawnError::system("epoll", error))?);
        Ok(())
    }

    /// The keeper's first word.
    fn started(mut self, news: Option<News>, program: PathBuf) -> Result<Tree, SpawnError> {
        let Some(News::Started { pid, in_cgroup }) = news else {
            self.socket = None;
            self.reap();
            return Err(match news {
                Some(News::Failed { stage, errno }) => explain(stage, errno, program),
                _ => {
                    orphans::end(&self.keeper, self.leaf.as_ref());
                    SpawnError::KeeperDied
                }
            });
        };
        self.pid = pid;
        if !in_cgroup {
            self.leaf = None;
            if self.containment == Containment::Cgroup {
                self.containment = Containment::Subreaper;
            }
        } else if self.containment == Containment::Subreaper {
            self.containment = Containment::Cgroup;
        }
        Ok(self)
    }

    /// The command's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What holds the tree together.
    pub fn containment(&self) -> Containment {
        self.containment
    }

    /// The keeper: as long as it lives, so may the tree.
    pub fn keeper(&self) -> Process {
        self.keeper
    }

    /// The tree's cgroup, if it has one of its own.
    pub fn cgroup(&self) -> Option<&Path> {
        self.leaf.as_ref().map(|leaf| leaf.path.as_path())
    }

    /// The command is in our process group: a signal the terminal sends us (Ctrl-C) has reached it already.
    pub fn shares_terminal(&self) -> bool {
        self.shares_terminal
    }

    /// Have the keeper kill the tree at this point of [`boottime`](crate::boottime), unless moved before then.
    /// It does so even if this process is stopped, or the machine was suspended meanwhile.
    pub fn set_deadline(&self, boottime: Option<Duration>) -> io::Result<()> {
        self.order(Order::Deadline(boottime.map_or(0, crate::clock::nanos)))
    }

    /// Send to the command; to its process group, unless that is ours too. Without effect once it has ended.
    pub fn signal(&self, signo: i32) -> io::Result<()> {
        self.order(Order::Signal(signo))
    }

    /// Wait for the end of the command itself; its descendants may live on. Cancel-safe.
    pub async fn wait(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.ended {
                return ended;
            }
            self.advance().await;
        }
    }

    /// TERM to the whole tree, after `grace` KILL. Returns when nothing of it is left. Cancel-safe, though a
    /// second call sends TERM again and starts the grace anew.
    pub async fn stop(&mut self, grace: Duration) -> Ended {
        self.end(grace).await;
        self.ended.unwrap_or(Ended { exit: None, by_deadline: false })
    }

    /// After [`wait`](Tree::wait): end what the command left behind (TERM, `grace`, KILL), and the keeper.
    /// Returns at once if nothing was left.
    pub async fn finish(mut self, grace: Duration) -> Leftovers {
        let gone = self.end(grace).await;
        match self.home.take() {
            Some((home, kind)) if self.stays => {
                (self.ended, self.gone, self.stays) = (None, None, false);
                home.put_back(kind, self);
            }
            _ => self.reap(),
        }
        gone
    }

    async fn end(&mut self, grace: Duration) -> Leftovers {
        // the last word often comes together with the one before
        while self.gone.is_none()
            && let Some(news) = self.heard()
        {
            self.take_in(news);
        }
        if let Some(gone) = self.gone {
            return gone;
        }
        if !self.reaped {
            // Somebody may have stopped the keeper: then it would not hear us.
            sys::kill(self.keeper.pid, libc::SIGCONT);
        }
        // An error means that the keeper is no longer there, which `until_gone` finds out as well.
        let _ = self.order(Order::TermTree);
        tokio::select! {
            biased;
            gone = self.until_gone() => return gone,
            () = sleep_boottime(grace) => {}
        }
        let _ = self.order(Order::KillTree);
        self.until_gone().await
    }

    async fn until_gone(&mut self) -> Leftovers {
        loop {
            if let Some(gone) = self.gone {
                return gone;
            }
            self.advance().await;
        }
    }

    fn order(&self, order: Order) -> io::Result<()> {
        match &self.socket {
            Some(socket) => sys::send(socket.as_raw_fd(), &order.encode()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Take in one piece of news.
    async fn advance(&mut self) {
        match self.receive().await {
            Some(news) => self.take_in(news),
            None => self.keeper_died().await,
        }
    }

    fn take_in(&mut self, news: News) {
        match news {
            News::Exited { status, by_deadline } => {
                self.ended = Some(Ended { exit: Some(Exit::from_status(status)), by_deadline });
            }
            News::Gone { leftovers, by_deadline, stays } => {
                self.gone = Some(Leftovers { count: leftovers, by_deadline, keeper_died: false });
                self.stays = stays;
            }
            News::Started { .. } | News::Failed { .. } => {}
        }
    }

    /// What has come, without waiting.
    fn heard(&mut self) -> Option<News> {
        let socket = self.socket.as_ref()?;
        match self.inbox.receive(socket.as_raw_fd()) {
            Received::Message(bytes) => News::decode(bytes),
            Received::Closed | Received::Nothing => None,
        }
    }

    /// `None`: the keeper is gone.
    async fn receive(&mut self) -> Option<News> {
        let socket = self.socket.as_ref()?;
        loop {
            match self.inbox.receive(socket.as_raw_fd()) {
                Received::Message(bytes) => return News::decode(bytes),
                Received::Closed => return None,
                Received::Nothing => socket.readable().await.ok()?.clear_ready(),
            }
        }
    }

    async fn keeper_died(&mut self) {
        self.reap();
        // What it left us takes a moment to die, and may fork meanwhile.
        let mut pause = Duration::from_micros(200);
        while !orphans::end(&self.keeper, self.leaf.as_ref()) {
            sleep_boottime(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        self.ended = self.ended.or(Some(Ended { exit: None, by_deadline: false }));
        self.gone = Some(Leftovers { count: 0, by_deadline: false, keeper_died: true });
    }

    /// Only when the keeper has said its last word, or its socket is closed: then this does not block. And only
    /// after it are the orphans of a killed keeper ours: the kernel closes its socket first.
    fn reap(&mut self) {
        if !self.reaped {
            self.reaped = true;
            reap_keeper(&self.keeper);
        }
    }
}

/// A keeper that is there before it is known what it is to start: it arranges itself while the caller is busy with
/// something else. Dropping it ends it.
#[derive(Debug)]
pub struct Ready {
    /// First, so that it is closed first: a tree that goes waits for its keeper, which ends when this is closed.
    ours: OwnedFd,
    tree: Tree,
}

impl Ready {
    /// Fork it. Of what it is to run only the descriptors, the tag and the containment matter.
    ///
    /// Must be called inside a tokio runtime with I/O enabled, and only where no other thread forks meanwhile: the heap is
    /// kept out of the fork, so that what this process writes next is not copied first. Makes this process a child
    /// subreaper.
    pub fn new(spec: Spec) -> Result<Ready, SpawnError> {
        let region = Region::map().map_err(|error| SpawnError::system("mmap", error))?;
        let (tree, ours, _) = Tree::fork(spec, Some(region), Fork::Light)?;
        Ok(Ready { ours, tree })
    }

    /// As [`Tree::spawn`], with the descriptors, the tag and the containment that it was made with: they must be the same.
    pub fn spawn(mut self, spec: Spec) -> Result<Tree, SpawnError> {
        if !self.tree.lay_out(&spec)? {
            // words without number: they are laid out before the fork
            drop(self);
            return Tree::spawn(spec);
        }
        let order = Order::Launch(spec.deadline.map_or(0, crate::clock::nanos));
        if sys::send(self.ours.as_raw_fd(), &order.encode()).is_err() {
            // somebody killed it before it was told anything
            drop(self);
            return Tree::spawn(spec);
        }
        let Ready { ours, tree } = self;
        let mut tree = tree.first_word(ours, spec.program)?;
        tree.region = None;
        Ok(tree)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.socket = None;
        if self.reaped {
            return;
        }
        // The closed socket is enough. We only stay to collect the keeper, and not for ever.
        let until = crate::clock::boottime().saturating_add(Duration::from_secs(1));
        while crate::clock::boottime() < until {
            match sys::wait(self.keeper.pid, libc::WNOHANG) {
                Ok(None) => std::thread::sleep(Duration::from_micros(200)),
                ended => {
                    orphans::forget_keeper(self.keeper.pid);
                    if matches!(ended, Ok(Some((_, status))) if libc::WIFSIGNALED(status)) {
                        orphans::end(&self.keeper, self.leaf.as_ref());
                    }
                    return;
                }
            }
        }
    }
}

/// How a keeper comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fork {
    /// With all that this process has.
    Whole,
    /// The same, and it stays for other commands.
    Stays,
    /// Without the heap.
    Light,
}

fn fork_keeper(plan: &Plan, socket: RawFd, how: Fork) -> io::Result<Process> {
    let mut keepers = orphans::keepers();
    let heap = if how == Fork::Light { heap::Kept::out() } else { None };
    // Until the keeper has arranged itself no signal may run a handler of ours there.
    let mask = sys::block_signals();
    let pid = match &heap {
        // SAFETY: as below, and the child touches nothing of the heap.
        Some(_) => unsafe { heap::fork() },
        // SAFETY: the child runs `keep`, which neither allocates nor takes a lock, and never returns.
        None => unsafe { libc::fork() },
    };
    if pid == 0 {
        keeper::keep(plan, socket);
    }
    let forked = sys::check(pid);
    drop(heap);
    sys::set_mask(&mask);
    let pid = forked?;
    keepers.push(pid);
    Ok(crate::process::find(pid).unwrap_or(Process { pid, start: 0 }))
}

fn reap_keeper(keeper: &Process) {
    // ECHILD: somebody made the kernel reap for us (SIGCHLD ignored). Fine as well.
    let _ = sys::wait(keeper.pid, 0);
    orphans::forget_keeper(keeper.pid);
}

fn explain(stage: u8, errno: i32, program: PathBuf) -> SpawnError {
    let source = io::Error::from_raw_os_error(errno);
    match stage {
        // The file is there: then it is its interpreter that is not.
        keeper::STAGE_EXEC if matches!(errno, libc::ENOENT | libc::ENOTDIR) && !program.exists() => {
            SpawnError::NotFound { program }
        }
        keeper::STAGE_EXEC => SpawnError::CannotExecute { program, source },
        keeper::STAGE_LATE => SpawnError::TooLate,
        keeper::STAGE_CHDIR => SpawnError::system("chdir", source),
        keeper::STAGE_STDIO => SpawnError::system("dup2", source),
        keeper::STAGE_CGROUP => SpawnError::system("cgroup", source),
        _ => SpawnError::system("fork", source),
    }
}
