//! What was typed, and beneath it a job of the file, and beneath that its `[defaults]`.

use std::path::Path;

use super::keys::{Given, Key, gives_way};
use crate::args::{OnLostArg, RunArgs};

type Layer = [(&'static Key, Given)];

/// The arguments of a job. Relative paths of the file become absolute here; those that were typed stay as they are.
pub(super) fn fill(typed: &RunArgs, name: &str, job: &Layer, defaults: &Layer, folder: &Path) -> RunArgs {
    let mut args = typed.clone();
    args.named = None;
    args.job = Some(name.to_owned());
    let typed_payload = typed.payload.is_some();
    let typed_plan = typed.plan.plan.is_some();
    for layer in [job, defaults] {
        // a probe that would never be asked is refused by `plan`: what is said above settles what is said below
        let never_asked = matches!(args.policy.on_lost, Some(OnLostArg::Retry | OnLostArg::Hold));
        let asked = args.policy.probe.is_some();
        for (key, given) in layer {
            let idle = match key.name {
                "probe" => never_asked,
                "on-lost" => asked && *given != Given::Text("probe".into()),
                _ => gives_way(key, &typed.what),
            };
            if !idle {
                (key.put)(&mut args, given);
            }
        }
    }
    let directory =
        args.place.directory.take().map_or_else(|| folder.to_owned(), |directory| folder.join(directory));
    if !typed_payload {
        args.payload = args.payload.map(|payload| directory.join(payload));
    }
    if !typed_plan {
        args.plan.plan = args.plan.plan.map(|plan| directory.join(plan));
    }
    args.place.directory = Some(directory);
    args
}
