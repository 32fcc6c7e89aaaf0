//! Each column fires, and each is silent where all is well: on folders made by hand.

use std::fs;

use super::*;
use crate::torture::answer::Said;

/// A folder of a round, made by hand.
struct Scene {
    folder: tempfile::TempDir,
    contender: Contender,
    has_stops: bool,
    seen: Vec<u64>,
    verdicts: Verdicts,
    is_done: bool,
}

impl Scene {
    fn of(contender: Contender) -> Scene {
        Scene {
            folder: tempfile::tempdir().unwrap(),
            contender,
            has_stops: false,
            seen: Vec::new(),
            verdicts: Verdicts::default(),
            is_done: true,
        }
    }

    fn with(self, name: &str, lines: &[&str]) -> Scene {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            contender: self.contender,
            dir: self.folder.path(),
            work: "w",
            sink: None,
            has_stops: self.has_stops,
            shares: false,
            seen: &self.seen,
            verdicts: &self.verdicts,
            is_done: self.is_done,
        }
    }

    /// Doubled, lost, unreported, stale.
    fn found(&self) -> [u64; 4] {
        let found = check(&self.evidence()).unwrap();
        [found.doubled, found.lost, found.unreported, found.stale]
    }

    fn shell(self, script: &str) -> Scene {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", script]);
        let made = isolated(&mut shell).current_dir(self.folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self
    }
}

const CLEAN: [u64; 4] = [0; 4];

#[test]
fn an_effect_is_there_once() {
    let probe = |effects: &[&str]| Scene::of(Contender::Probe).with("effects", effects).found();
    assert_eq!(probe(&["1 0"]), CLEAN);
    assert_eq!(probe(&["1 0", "2 1", "3 1"]), [2, 0, 0, 0]);
    assert_eq!(probe(&[]), [0, 1, 0, 0]);
    let flock = |effects: &[&str]| Scene::of(Contender::Flock).with("effects", effects).found();
    assert_eq!(flock(&["0 0"]), CLEAN);
    assert_eq!(flock(&["0 0", "0 1"]), [1, 0, 0, 0]);
}

#[test]
fn each_step_and_each_item_is_there_once() {
    let steps = |effects: &[&str]| {
        Scene::of(Contender::Steps).with("effects", effects).with("ended", &["three"]).found()
    };
    assert_eq!(steps(&["one", "two", "three"]), CLEAN);
    assert_eq!(steps(&["one", "two", "two"]), [1, 1, 0, 0], "one doubled does not hide one lost");
    let all: Vec<String> = (0..ITEMS).map(|n| format!("item-{n} key{n}")).collect();
    let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
    let batch = |effects: &[&str]| Scene::of(Contender::Batch).with("effects", effects).found();
    assert_eq!(batch(&all), CLEAN);
    all[3] = all[2];
    assert_eq!(batch(&all), [1, 1, 0, 0]);
}

#[test]
fn a_repeated_attempt_must_have_been_asked_about() {
    let mut hold = Scene::of(Contender::Hold)
        .with("effects", &["2 1"])
        .with("starts", &["1 0", "2 1"])
        .with("ended", &["1"]);
    assert_eq!(hold.found(), [0, 0, 1, 0]);
    hold.verdicts.not_done.insert(1);
    assert_eq!(hold.found(), CLEAN);
    let mut steps = Scene::of(Contender::Steps)
        .with("effects", &["one", "two", "three"])
        .with("begun", &["one", "two", "three", "three"])
        .with("ended", &["one", "two", "three"]);
    assert_eq!(steps.found(), [0, 0, 1, 0]);
    steps.verdicts.not_done.insert(1);
    assert_eq!(steps.found(), CLEAN);
}

#[test]
fn asked_twice_about_one_attempt_is_one_verdict() {
    let mut hold = Scene::of(Contender::Hold)
        .with("effects", &["3 2"])
        .with("starts", &["1 0", "2 1", "3 2"])
        .with("ended", &["2"]);
    hold.verdicts.not_done.extend([1, 1]);
    assert_eq!(hold.found(), [0, 0, 1, 0], "the second attempt was repeated unasked");
}

#[test]
fn what_never_ended_must_not_be_taken_for_done() {
    // killed after its effect, and the next one says done
    let mut hold = Scene::of(Contender::Hold).with("effects", &["1 0"]).with("starts", &["1 0"]);
    assert_eq!(hold.found(), [0, 0, 1, 0]);
    hold.is_done = false;
    assert_eq!(hold.found(), CLEAN, "nobody said that it is done");
    (hold.is_done, hold.verdicts.done) = (true, 1);
    assert_eq!(hold.found(), CLEAN, "a person did");
    let ended =
        Scene::of(Contender::Hold).with("effects", &["1 0"]).with("starts", &["1 0"]).with("ended", &["0"]);
    assert_eq!(ended.found(), CLEAN);
    let steps = Scene::of(Contender::Steps)
        .with("effects", &["one", "two", "three"])
        .with("begun", &["one", "two", "three"])
        .with("ended", &["one", "two"]);
    assert_eq!(steps.found(), [0, 0, 1, 0]);
}

#[test]
fn tokens_of_attempts_grow() {
    let starts = |lines: &[&str]| Scene::of(Contender::Probe).with("effects", &["1 0"]).with("starts", lines);
    assert_eq!(starts(&["1 0", "2 1"]).found(), CLEAN);
    assert_eq!(starts(&["2 0", "1 1"]).found(), [0, 0, 0, 1]);
    assert_eq!(starts(&["2 0", "2 1"]).found(), [0, 0, 0, 1]);
    let mut stopped = starts(&["2 0", "1 1"]);
    stopped.has_stops = true;
    assert_eq!(stopped.found(), CLEAN, "one that was stopped says late that it began");
}

#[test]
fn a_file_never_goes_back() {
    for contender in [Contender::Write, Contender::PlainWrite] {
        let mut file = Scene::of(contender).with("target", &["2"]).with("accepted", &["1", "2"]);
        file.seen = vec![1, 2];
        assert_eq!(file.found(), CLEAN);
        file.seen = vec![1, 2, 1, 2];
        assert_eq!(file.found(), [0, 0, 0, 1], "seen on the way");
        let mut file = file.with("target", &["1"]);
        file.seen = vec![1];
        assert_eq!(file.found(), [0, 0, 0, 1], "2 was accepted, and 1 is there");
        let mut none = Scene::of(contender).with("target", &["torn", "1"]);
        none.seen = vec![1];
        assert_eq!(none.found(), [0, 1, 0, 0]);
    }
}

#[test]
fn rows_follow_their_tokens() {
    let table = "sqlite3 user.db 'CREATE TABLE effects (token INTEGER); CREATE TABLE log (token INTEGER);";
    let rows = |contender, rows: &str| Scene::of(contender).shell(&format!("{table} {rows}'")).found();
    for contender in [Contender::Sql, Contender::PlainSql] {
        let good = "INSERT INTO effects VALUES (1); INSERT INTO log VALUES (1), (1), (2)";
        assert_eq!(rows(contender, good), CLEAN);
        let stale = "INSERT INTO effects VALUES (1); INSERT INTO log VALUES (2), (1)";
        assert_eq!(rows(contender, stale), [0, 0, 0, 1]);
        assert_eq!(rows(contender, ""), [0, 1, 0, 0]);
    }
}

#[test]
fn what_cannot_be_counted_is_no_zero() {
    let sql = Scene::of(Contender::Sql);
    assert!(check(&sql.evidence()).unwrap_err().contains("cannot be counted"));
    let push = Scene::of(Contender::Push);
    assert!(check(&push.evidence()).unwrap_err().contains("cannot be counted"));
}

/// A bare repository with so many commits of the work, and a fence with these tokens.
fn remote(commits: u32, fence: &[u32]) -> Scene {
    let mut script = String::from(
        "git init -q --bare -b main remote.git && cd remote.git && tree=$(git mktree </dev/null)
         put() { git update-ref $1 $(printf '%b' \"$2\" | git commit-tree $tree $(git rev-parse -q --verify $1 | sed 's/^/-p /')); }
         put refs/heads/main first\n",
    );
    for _ in 0..commits {
        script.push_str("put refs/heads/main work\n");
    }
    for token in fence {
        script.push_str(&format!(
            "put refs/fence/site 'semel fence of site\\n\\nToken: {token}\\nNonce: 00\\nMark: $RANDOM\\n'\n"
        ));
    }
    Scene::of(Contender::Push).shell(&script)
}

#[test]
fn a_push_is_there_once_and_its_fence_never_goes_back() {
    assert_eq!(remote(1, &[1, 1, 2]).with("accepted", &["2"]).found(), CLEAN);
    assert_eq!(remote(2, &[1, 2]).with("accepted", &["2"]).found(), [1, 0, 0, 0]);
    assert_eq!(remote(0, &[1]).found(), [0, 1, 0, 0]);
    assert_eq!(remote(1, &[1, 2, 1]).with("accepted", &["2"]).found(), [0, 0, 0, 1]);
    assert_eq!(remote(1, &[]).with("accepted", &["2"]).found(), [0, 0, 0, 1], "past the fence");
}

#[test]
fn an_answer_that_it_is_done_needs_the_effect_at_that_time() {
    let answer = |said| Answer { said, items: Vec::new(), word: String::new() };
    let missing = |scene: &Scene, said| missing(&scene.evidence(), &answer(said)).unwrap();
    let none = Scene::of(Contender::Hold).with("effects", &[]);
    assert_eq!(missing(&none, Said::Done), 1);
    assert_eq!(missing(&none, Said::WasDone), 1);
    for said in [Said::Yielded, Said::Doubt, Said::Lost, Said::Failed, Said::Unknown] {
        assert_eq!(missing(&none, said), 0, "{said:?} claims nothing");
    }
    assert_eq!(missing(&Scene::of(Contender::Hold).with("effects", &["1 0"]), Said::Done), 0);
    let steps = Scene::of(Contender::Steps).with("effects", &["one", "two"]);
    assert_eq!(missing(&steps, Said::Done), 1);
}

#[test]
fn an_item_that_is_called_done_needs_its_effect() {
    let batch = Scene::of(Contender::Batch).with("effects", &["item-1 k"]);
    let answer = |items: &[&str]| Answer {
        said: Said::Unknown,
        items: items.iter().map(|item| (*item).to_owned()).collect(),
        word: String::new(),
    };
    assert_eq!(missing(&batch.evidence(), &answer(&["item-1"])).unwrap(), 0);
    assert_eq!(missing(&batch.evidence(), &answer(&["item-1", "item-2"])).unwrap(), 1);
}
