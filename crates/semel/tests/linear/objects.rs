//! Object stores: S3 and GCS by a server of our own that has on disk what it answered, S3 by moto, Azure by Azurite.
//!
//! Moto has everything in its memory and Azurite writes some of it later, so neither is killed. Moto is an extra beside our
//! own server, and slow: it gets a tenth of the calls.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use semel::store::Settings;
use semel_testkit::{Azurite, Moto, OnDisk, rounds};

use crate::arena::{Arena, CALLS};
use crate::nemesis;
use crate::servers::handles;

fn settings(variables: &[(&str, &str)]) -> Settings {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings { variables: variables.collect(), ..Settings::default() }
}

fn on_disk(name: &'static str, variables: &[(&str, &str)], url: impl Fn(SocketAddr) -> String) {
    let server = OnDisk::start();
    let (handles, proxies) = handles(server.0.address(0), &settings(variables), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::server(&Arc::new(Mutex::new(server)), |server| &mut server.0));
    Arena { name, handles, deck }.run().holds();
}

#[test]
fn s3_is_linearizable() {
    on_disk("s3", &Moto::VARIABLES, |at| Moto::url_at(at, "ledger"));
}

#[test]
fn gcs_is_linearizable() {
    on_disk("gcs", &[], |at| OnDisk::gs_url_at(at, "ledger"));
}

#[test]
fn s3_by_moto_is_linearizable() {
    let server = Moto::start();
    let url = |at| Moto::url_at(at, "ledger");
    let (handles, proxies) = handles(server.0.address(0), &settings(&Moto::VARIABLES), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::stops(&Arc::new(Mutex::new(server)), |server| &mut server.0));
    Arena { name: "s3 by moto", handles, deck }.run_for(rounds(CALLS) / 10).holds();
}

#[test]
fn azure_is_linearizable() {
    let server = Azurite::start();
    let url = |at| Azurite::url_at(at, "ledger");
    let (handles, proxies) = handles(server.0.address(0), &settings(&Azurite::VARIABLES), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::stops(&Arc::new(Mutex::new(server)), |server| &mut server.0));
    Arena { name: "azure", handles, deck }.run().holds();
}
