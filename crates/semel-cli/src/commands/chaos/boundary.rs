//! Where a run is crashed, what that means, and what helps.

use std::fmt;

use clap::ValueEnum;

/// A boundary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Boundary {
    /// Semel is killed before it claims the work
    BeforeClaim,
    /// Semel is killed after the claim, before the command starts
    AfterClaim,
    /// Everything is killed in the middle of the command, as by a power cut
    AllKilled,
    /// Semel alone is killed in the middle of the command
    SemelKilled,
    /// The command alone is killed in its middle, as by the OOM killer
    CommandKilled,
    /// Semel is killed when the command has ended, before its outcome is on record
    AfterCommand,
    /// Semel is killed when the outcome is on record (the lease is released in the same write)
    AfterOutcome,
    /// Two are fired at once
    DoubleFire,
    /// Everything is stopped in the middle of the command until the lease has lapsed and another has taken over, then wakes
    Stall,
    /// Semel is killed before it claims the command's first step
    BeforeStep,
    /// Semel is killed after the claim of a step, before the step's command starts
    AfterStepClaim,
    /// Semel is killed when a step's command has ended, before its outcome is on record
    AfterStep,
    /// Semel is killed when the outcome of a step is on record
    AfterStepOutcome,
}

impl Boundary {
    /// Those of a command that uses steps.
    pub(super) const STEPS: [Boundary; 4] =
        [Boundary::BeforeStep, Boundary::AfterStepClaim, Boundary::AfterStep, Boundary::AfterStepOutcome];

    /// Those that were asked for, each once; else all that every command has.
    pub(super) fn chosen(asked: &[Boundary]) -> Vec<Boundary> {
        let all = Boundary::value_variants().iter().copied();
        match asked {
            [] => all.filter(|boundary| !boundary.is_of_a_step()).collect(),
            asked => all.filter(|boundary| asked.contains(boundary)).collect(),
        }
    }

    pub(super) fn is_of_a_step(self) -> bool {
        Boundary::STEPS.contains(&self)
    }

    /// The place in Semel's own code at which it is killed.
    pub(super) fn place(self) -> Option<&'static str> {
        match self {
            Boundary::BeforeClaim => Some("run.claim.before"),
            Boundary::AfterClaim => Some("run.claim.after"),
            Boundary::AfterCommand => Some("run.settle.before"),
            Boundary::AfterOutcome => Some("run.settle.after"),
            Boundary::BeforeStep => Some("step.claim.before"),
            Boundary::AfterStepClaim => Some("step.claim.after"),
            Boundary::AfterStep => Some("step.settle.before"),
            Boundary::AfterStepOutcome => Some("step.settle.after"),
            _ => None,
        }
    }

    /// It means nothing where there is no claim, and no step.
    pub(super) fn is_semels_own(self) -> bool {
        matches!(self, Boundary::BeforeClaim | Boundary::AfterClaim) || self.is_of_a_step()
    }

    /// How often the command is started in a round: with Semel and without it.
    pub(super) fn starts(self) -> (u32, u32) {
        match self {
            Boundary::BeforeClaim | Boundary::AfterClaim => (1, 0),
            Boundary::AfterOutcome | Boundary::DoubleFire => (1, 2),
            _ if self.is_of_a_step() => (2, 0),
            _ => (2, 2),
        }
    }

    /// What helps where the effect is there twice.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Boundary::AllKilled
            | Boundary::SemelKilled
            | Boundary::CommandKilled
            | Boundary::AfterCommand => {
                "nobody can know whether the effect came before the crash: tell Semel how to find out (--probe CMD), \
                 hand SEMEL_KEY to the target as an idempotency key, or ask a person (--on-lost hold)"
            }
            Boundary::Stall => {
                "the stalled attempt had its effect before the takeover, or went on after it: --probe CMD helps against the \
                 first; against the second the target must check the token (semel write, semel push, semel fence sql) or \
                 know SEMEL_KEY as an idempotency key"
            }
            Boundary::BeforeStep
            | Boundary::AfterStepClaim
            | Boundary::AfterStep
            | Boundary::AfterStepOutcome => {
                "a run that is fired again replays its steps and repeats what is outside of them: make a step of every effect; \
                 a step that was lost is asked about, unless --on-lost retry says otherwise"
            }
            Boundary::BeforeClaim | Boundary::AfterClaim | Boundary::AfterOutcome | Boundary::DoubleFire => {
                "that must not be: either something else changes the count, or it is a fault of Semel's; please report it \
                 with the seed"
            }
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Boundary::BeforeClaim => "before-claim",
            Boundary::AfterClaim => "after-claim",
            Boundary::AllKilled => "all-killed",
            Boundary::SemelKilled => "semel-killed",
            Boundary::CommandKilled => "command-killed",
            Boundary::AfterCommand => "after-command",
            Boundary::AfterOutcome => "after-outcome",
            Boundary::DoubleFire => "double-fire",
            Boundary::Stall => "stall",
            Boundary::BeforeStep => "before-step",
            Boundary::AfterStepClaim => "after-step-claim",
            Boundary::AfterStep => "after-step",
            Boundary::AfterStepOutcome => "after-step-outcome",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_as_it_is_asked_for() {
        for boundary in Boundary::value_variants() {
            let name = boundary.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(name, Some(boundary.to_string()));
        }
        let twice = [Boundary::Stall, Boundary::AfterClaim, Boundary::Stall];
        assert_eq!(Boundary::chosen(&twice), [Boundary::AfterClaim, Boundary::Stall]);
        let all = Boundary::value_variants().len();
        assert_eq!(Boundary::chosen(&[]).len(), all - Boundary::STEPS.len());
        assert_eq!(Boundary::chosen(&Boundary::STEPS), Boundary::STEPS);
    }
}
