//! Restate: its server, alone on this machine, with a log that is synced as it is by default; and a service in Node.

use std::path::{Path, PathBuf};
use std::process::Command;

use semel_testkit::{Recipe, Server};

use super::lines;
use super::peers::{node, script};

pub(super) const WANTED: [&str; 2] = ["@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2"];

/// A running server, gone when this is dropped.
pub(super) struct Restate {
    server: Server,
    packages: PathBuf,
}

impl Restate {
    /// Everything that it keeps is in the folder, on the disk that the others are measured on.
    pub(super) fn start(folder: &Path) -> Result<Restate, String> {
        let packages = node("restate", &WANTED)?;
        let program = packages.join("node_modules").join(program()?);
        lines(Command::new(&program).arg("--version"))?;
        let recipe = |_: &Path, ports: &[u16]| {
            let at = |index: usize| format!("127.0.0.1:{}", ports[index]);
            let words = [program.as_os_str(), "--no-logo".as_ref(), "--listen-mode".as_ref(), "tcp".as_ref()];
            let mut recipe = Recipe::new(words);
            recipe.words.extend(["--base-dir".into(), folder.into()]);
            recipe.words.extend(["--bind-address".into(), at(2).into()]);
            let env = [
                ("RESTATE_INGRESS__BIND_ADDRESS", at(0)),
                ("RESTATE_ADMIN__BIND_ADDRESS", at(1)),
                ("RESTATE_LOG_FILTER", "warn".to_owned()),
                // no telemetry
                ("RESTATE_DISABLE_TELEMETRY", "true".to_owned()),
                ("DO_NOT_TRACK", "1".to_owned()),
            ];
            recipe.env = env.map(|(name, value)| (name.to_owned(), value)).into();
            recipe
        };
        let listens =
            |server: &Server| server.listens() && std::net::TcpStream::connect(server.address(1)).is_ok();
        Ok(Restate { server: Server::start("restate", 3, recipe, listens), packages })
    }

    /// So many steps in all, in so many invocations at once.
    pub(super) fn steps(&self, steps: &str, at_once: &str) -> Command {
        let mut node = Command::new("node");
        node.arg(script("restate_steps.mjs")).arg(self.packages.join("package.json"));
        node.args([0, 1].map(|port| self.server.port(port).to_string())).args([steps, at_once]);
        node
    }
}

/// The server's binary, which is in a package of its own for each kind of machine.
fn program() -> Result<PathBuf, String> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(format!("there is no Restate for {other}")),
    };
    let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    Ok(Path::new("@restatedev").join(format!("restate-server-{system}-{machine}/bin/restate-server")))
}
