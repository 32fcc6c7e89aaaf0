//! CronJobs for Kubernetes.
//!
//! - `concurrencyPolicy: Allow`: Semel's lease decides, and it lapses. With `Forbid` a Pod that hangs (a lost node, an
//!   image that cannot be pulled) would hold back every later slot; two Pods at once are harmless, because the second
//!   one finds the lease held.
//! - `backoffLimit: 0`: Semel counts failures, and says when a person is needed. A Pod that was evicted did not fail:
//!   it is started again, and the run resumes.
//! - The scheduled minute is in the Job's name, which the Pod knows by its label: `--scheduled-for`.

use jiff::tz::TimeZone;
use semel_core::trigger::{Line, Untellable, on_clock, slug};

use super::{Job, Made, Site, Unit, quoted};

/// A CronJob's name has at most 52 characters.
const NAME_LIMIT: usize = 40;

pub(super) fn units(site: &Site<'_>) -> Made {
    let mut made = Made::default();
    for job in &site.jobs {
        match lines(site, job) {
            Ok(lines) => {
                let name = format!("semel-{}", slug(&job.name, NAME_LIMIT));
                for (nth, line) in lines.iter().enumerate() {
                    let name = if nth == 0 { name.clone() } else { format!("{name}-{}", nth + 1) };
                    let text = manifest(site, job, &name, line);
                    made.units.push(Unit { file: format!("{name}.yaml"), text });
                }
            }
            Err(why) => made.untold.push(job.untold(why)),
        }
    }
    let absent: String = site.without_lines().map(|line| format!("# {line}\n")).collect();
    if let Some(first) = made.units.first_mut() {
        first.text.insert_str(0, &absent);
    }
    made
}

fn lines(site: &Site<'_>, job: &Job) -> Result<Vec<Line>, Untellable> {
    let zone = if job.schedule.is_zoned() { job.zone(&TimeZone::UTC) } else { TimeZone::UTC };
    on_clock(&job.wish(), &site.clocks(&zone, &zone, true))
}

fn manifest(site: &Site<'_>, job: &Job, name: &str, line: &Line) -> String {
    let zone = match &job.tz {
        Some(tz) if job.schedule.is_zoned() => tz.as_str(),
        _ => "Etc/UTC",
    };
    // long enough for a controller that was away, and short enough for the hundred starts that it looks back
    let deadline = job.max_late.unwrap_or(job.schedule.period().shortest).as_secs().clamp(60, 86_400);
    let active = job.policy.timeout_ms.map(|timeout_ms| {
        let seconds = timeout_ms.div_ceil(1000) + job.stop_seconds() + 300;
        format!("      # the job's timeout, what Semel needs to stop it, and 5 minutes to pull the image\n      activeDeadlineSeconds: {seconds}\n")
    });
    let image = match &site.args.image {
        Some(image) => quoted(image),
        None => {
            "\"registry.example/jobs:latest\" # replace: semel, semel.toml and the job's programs are in it"
                .to_owned()
        }
    };
    // a dollar with a bracket behind it is a variable
    let word = |word: &str| quoted(&word.replace("$(", "$$("));
    let args: String = ["run", &job.name, "--config", &site.config]
        .iter()
        .map(|text| format!("                - {}\n", word(text)))
        .collect();
    let mut secrets = job.variables.clone();
    if site.no_store {
        secrets.insert("SEMEL_STORE".to_owned());
    }
    let secrets: String = secrets
        .iter()
        .map(|name| {
            format!("                - name: {name}\n                  valueFrom: {{ secretKeyRef: {{ name: semel, key: {name} }} }}\n")
        })
        .collect();
    format!(
        "# {name}.yaml: job {job_name}, every {schedule}\n\
         # The ledger must be one that all Pods share; a Pod's own disk is gone with it.\n\
         apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/managed-by: semel\n\
         spec:\n  schedule: {times}\n  timeZone: {zone}\n\
         \x20 # Semel's lease decides, and it lapses: a Pod that hangs must not hold back later slots\n\
         \x20 concurrencyPolicy: Allow\n\
         \x20 startingDeadlineSeconds: {deadline}\n\
         \x20 successfulJobsHistoryLimit: 1\n  failedJobsHistoryLimit: 3\n\
         \x20 jobTemplate:\n    spec:\n\
         \x20     # Semel counts failures; only a Pod that was evicted is started again, and resumes\n\
         \x20     backoffLimit: 0\n\
         \x20     podFailurePolicy:\n        rules:\n          - action: Ignore\n            onPodConditions:\n              - type: DisruptionTarget\n                status: \"True\"\n\
         {active}\
         \x20     template:\n        spec:\n          restartPolicy: Never\n\
         \x20         # Semel stops the command on TERM, and records it\n\
         \x20         terminationGracePeriodSeconds: {grace}\n\
         \x20         automountServiceAccountToken: false\n\
         \x20         securityContext:\n            runAsNonRoot: true\n            seccompProfile: {{ type: RuntimeDefault }}\n\
         \x20         containers:\n            - name: job\n              image: {image}\n\
         \x20             command: [{bin}]\n              args:\n{args}\
         \x20               # the Job's name holds the scheduled minute, however late the Pod starts\n\
         \x20               - \"--scheduled-for\"\n                - \"$(JOB_NAME)\"\n\
         \x20             env:\n                - name: JOB_NAME\n                  valueFrom:\n                    fieldRef:\n                      fieldPath: metadata.labels['batch.kubernetes.io/job-name']\n{secrets}\
         \x20             securityContext:\n                allowPrivilegeEscalation: false\n                capabilities: {{ drop: [ALL] }}\n",
        job_name = job.name,
        schedule = job.schedule,
        times = quoted(&line.crontab()),
        zone = quoted(zone),
        active = active.unwrap_or_default(),
        grace = job.stop_seconds(),
        bin = word(&site.bin),
    )
}
