//! The suite that every store passes.

use std::path::PathBuf;
use std::sync::Arc;

use semel::store::Store;
use semel::store::conformance::{self, Helper, Later, Subject};
use tempfile::TempDir;

use crate::support::{PROBE, open};

struct Shared {
    folder: Arc<TempDir>,
    path: PathBuf,
}

impl Shared {
    fn new() -> Shared {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Shared { path: folder.path().join("store"), folder }
    }
}

impl Subject for Shared {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let store: Arc<dyn Store> = Arc::new(open(&self.path));
        Box::pin(async { Ok(store) })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let name = format!("isolated-{}", std::fs::read_dir(self.folder.path()).unwrap().count());
        let other = Shared { folder: Arc::clone(&self.folder), path: self.folder.path().join(name) };
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn helper(&self) -> Option<Helper> {
        Some(Helper { program: PathBuf::from(PROBE), url: format!("dir:{}", self.path.display()) })
    }
}

#[tokio::test]
async fn a_directory_passes_the_suite_on_one_thread() {
    let report = conformance::run(Arc::new(Shared::new())).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_directory_passes_the_suite_on_many_threads() {
    let report = conformance::run(Arc::new(Shared::new())).await;
    assert!(report.holds(), "{report}");
}
