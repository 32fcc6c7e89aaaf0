//! PostgreSQL for the tests: its programs alone. Every test starts a server of its own; none is left on the machine.

use std::fs;
use std::process::{Command, Stdio};

use crate::tools::find;

/// Debian's package of the server.
pub(crate) const SERVER: &str = "postgresql";

/// Debian's package of the driver for Python, for the example in the docs.
pub(crate) const PSYCOPG: &str = "python3-psycopg";

/// Where Debian's package reads whether to make a cluster, and start it, when it is installed.
const CLUSTERS: &str = "/etc/postgresql-common/createcluster.conf";

/// Is there a server's program? Debian keeps it off the PATH.
pub(crate) fn has_server() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin")).any(|bin| bin.join("initdb").is_file());
    debian || (find("initdb").is_some() && find("postgres").is_some())
}

/// Is there a Python with the driver?
pub(crate) fn has_psycopg() -> bool {
    ["/usr/bin/python3", "python3"].iter().any(|python| {
        let mut asked = Command::new(python);
        asked.args(["-c", "import psycopg"]).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    })
}

/// Install the server, but have no cluster made and no server started on the way; the machine's own setting is put
/// back afterwards.
pub(crate) fn without_a_cluster(install: impl Fn(&[&str]) -> Result<(), String>) -> Result<(), String> {
    install(&["postgresql-common"])?;
    let setting = fs::read_to_string(CLUSTERS).map_err(|why| format!("{CLUSTERS}: {why}"))?;
    let write = |text: &str| fs::write(CLUSTERS, text).map_err(|why| format!("{CLUSTERS}: {why}"));
    write(&format!("{setting}\ncreate_main_cluster = false\n"))?;
    let installed = install(&[SERVER]);
    write(&setting).and(installed)
}
