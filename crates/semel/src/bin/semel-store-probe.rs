//! t
use semel::store::Store;
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    eprintln!("@@ open");
    let store = semel::store::sqlite::Sqlite::open(std::path::Path::new("/tmp/probe.db")).unwrap();
    eprintln!("@@ load");
    let key = semel::core::record::RecordKey::from_stored("a".into());
    let l = runtime.block_on(store.load(std::slice::from_ref(&key))).unwrap();
    eprintln!("@@ swap");
    let expect = l.records[0].as_ref().map_or(semel::core::record::Expect::Absent, |r| semel::core::record::Expect::Version(r.version.clone()));
    runtime.block_on(store.swap(&[semel::store::Change::Put{key, expect, value: vec![1;400], ttl: None}], semel::store::Durability::Durable)).unwrap();
    eprintln!("@@ close");
    store.close();
    eprintln!("@@ end");
}
