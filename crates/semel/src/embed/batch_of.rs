//! A batch with its items: what is bound to each, how the world is asked about it, and who watches.

use std::sync::{Arc, Mutex};

use semel_core::name::Name;
use semel_core::payload::Fingerprint;
use semel_core::policy::OnLost;
use semel_core::work::{Fields, Work};
use serde::Serialize;
use serde_json::Value;

use super::Found;
use super::batch::{Batch, BatchItem, BatchOutcome, Bodies, IntoFields, ProbeOf, locked};
use crate::engine::batch::{Bad, BatchEvent, BatchReport, Fate, ItemIn, Iterated};
use crate::engine::{Probed, Report, Undisturbed};

type PayloadOf<T> = Box<dyn Fn(&T) -> Result<Value, serde_json::Error> + Send + Sync>;
type OnItem = Box<dyn FnMut(&Work, &Fate<'_>) + Send>;

/// A batch with its items, to be run. See [`Batch::items`].
#[must_use = "run() does it"]
pub struct BatchOf<'a, T, I> {
    batch: Batch<'a>,
    items: I,
    payload_of: Option<PayloadOf<T>>,
    probe: Option<ProbeOf<T>>,
    on_item: Option<OnItem>,
}

impl<T, I> std::fmt::Debug for BatchOf<'_, T, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchOf").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl<'a, T, I> BatchOf<'a, T, I> {
    pub(super) fn new(batch: Batch<'a>, items: I) -> BatchOf<'a, T, I> {
        BatchOf { batch, items, payload_of: None, probe: None, on_item: None }
    }

    /// Bind this to each item's key: the same key with another value is a mismatch, counted and not run, instead of a
    /// duplicate.
    pub fn payload_of<P: Serialize>(mut self, payload: impl Fn(&T) -> P + Send + Sync + 'static) -> Self {
        self.payload_of = Some(Box::new(move |item| serde_json::to_value(payload(item))));
        self
    }

    /// Ask the world about an item whose last attempt vanished, before it is done again: so its effect happens once even
    /// if a process died between the effect and its record.
    pub fn probe<P, Q>(mut self, probe: P) -> Self
    where
        P: Fn(Arc<T>) -> Q + Send + Sync + 'static,
        Q: Future<Output = Found<()>> + Send + 'static,
    {
        self.probe = Some(Arc::new(move |item| {
            let asked = probe(item);
            Box::pin(async move {
                match asked.await {
                    Found::Happened(()) => Probed::Happened,
                    Found::DidNot => Probed::DidNot,
                    Found::Unknown(why) => Probed::Unknown(why),
                }
            })
        }));
        self
    }

    /// Hear what became of each item, as soon as that is on record. It is called between the bodies: it must not block.
    pub fn on_item(mut self, hear: impl FnMut(&Work, &Fate<'_>) + Send + 'static) -> Self {
        self.on_item = Some(Box::new(hear));
        self
    }

    /// Do each item once: see [`Batch::run`].
    pub fn run<K, V, E, F, R>(
        self,
        body: F,
    ) -> impl Future<Output = BatchOutcome<E>> + use<K, T, V, E, F, R, I>
    where
        K: IntoFields,
        T: Send + Sync,
        V: Serialize,
        F: Fn(BatchItem<T>) -> R,
        R: Future<Output = Result<V, E>>,
        I: IntoIterator<Item = (K, T)>,
    {
        let BatchOf { batch, items, payload_of, probe, mut on_item } = self;
        let engine = batch.semel.engine().clone();
        let plan = batch.plan();
        let resource_of = batch.resource_of;
        let items = items.into_iter().map(move |(key, value)| {
            let fields = key.into_fields();
            let named = resource_of.as_ref().map(|name| name.of(&fields));
            let resource = named.as_deref().map(resource).transpose()?;
            let payload = payload_of.as_ref().map(|payload_of| bound(payload_of, &value)).transpose()?;
            let (bytes, data) = (std::mem::size_of::<T>(), Arc::new(value));
            Ok::<_, Bad>(ItemIn { fields, payload, resource, line: None, bytes, data })
        });
        async move {
            let errors = Arc::<Mutex<Vec<(Work, E)>>>::default();
            let mut plan = match plan {
                Ok(plan) => plan,
                Err(why) => {
                    let report = BatchReport::NotRun(Report::Unusable(why));
                    return BatchOutcome { report, errors: Vec::new() };
                }
            };
            if probe.is_some() {
                plan.policy.on_lost = OnLost::Probe;
            }
            let mut doer = Bodies { body: Arc::new(body), probe, errors: Arc::clone(&errors) };
            let mut hear = |event: BatchEvent<'_, Arc<T>>| {
                if let (Some(on_item), BatchEvent::Item { item, fate }) = (&mut on_item, event) {
                    on_item(&item.work, &fate);
                }
            };
            let report = engine.batch(&plan, Iterated(items), &mut doer, &mut Undisturbed, &mut hear).await;
            let errors = std::mem::take(&mut *locked(&errors));
            BatchOutcome { report, errors }
        }
    }
}

fn bad(why: String) -> Bad {
    Bad { line: None, why, is_last: false }
}

fn resource(text: &str) -> Result<Name, Bad> {
    Name::new(text).map_err(|why| bad(format!("its resource {text:?} {why}")))
}

fn bound<T>(payload_of: &PayloadOf<T>, item: &T) -> Result<Fingerprint, Bad> {
    let value = payload_of(item).map_err(|why| bad(format!("its payload is no JSON: {why}")))?;
    Fingerprint::of_json(&value, &[]).map_err(|why| bad(why.to_string()))
}

/// Which resource an item names, by its key fields.
#[derive(Clone)]
pub(super) struct ResourceOf(pub(super) Arc<dyn Fn(&Fields) -> String + Send + Sync>);

impl ResourceOf {
    fn of(&self, fields: &Fields) -> String {
        let ResourceOf(name) = self;
        name(fields)
    }
}

impl std::fmt::Debug for ResourceOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResourceOf")
    }
}
