//! The model of the rules, as it is checked in `semel-core`.

#[path = "../../../semel-core/tests/model/check.rs"]
pub mod check;
#[path = "../../../semel-core/tests/model/config.rs"]
pub mod config;
#[path = "../../../semel-core/tests/model/facts.rs"]
pub mod facts;
#[path = "../../../semel-core/tests/model/failover.rs"]
pub mod failover;
#[path = "../../../semel-core/tests/model/items.rs"]
pub mod items;
#[path = "../../../semel-core/tests/model/requests.rs"]
pub mod requests;
#[path = "../../../semel-core/tests/model/row.rs"]
pub mod row;
#[path = "../../../semel-core/tests/model/shared.rs"]
pub mod shared;
#[path = "../../../semel-core/tests/model/sink.rs"]
pub mod sink;
#[path = "../../../semel-core/tests/model/store.rs"]
pub mod store;
#[path = "../../../semel-core/tests/model/walk.rs"]
pub mod walk;
#[path = "../../../semel-core/tests/model/worker.rs"]
pub mod worker;
#[path = "../../../semel-core/tests/model/world.rs"]
pub mod world;
