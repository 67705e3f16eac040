//! One model for one conversation: a gate with hysteresis between turns.
//!
//! Turn by turn a router sends "commit it" to the smallest model in the middle of a hard task, and every switch throws
//! away the provider's cache of the conversation. So a conversation moves to a stronger model at once and to a weaker one
//! only when several turns in a row ask for it.

use super::{Decision, Route, WhyNot};
use crate::catalog::{Backend, Catalog};
use serde::{Deserialize, Serialize};

/// Turns in a row that have to ask for a weaker model before a conversation moves to it.
pub const PATIENCE: u32 = 3;

/// What is remembered of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The model that answers it.
    pub model: String,
    /// Turns in a row that asked for another one and did not get it.
    pub held: u32,
}

/// Holds a conversation at its model where `decision` would move it for no gain, and gives what to remember for the next
/// turn. `conversation` is what the turn before gave, `None` on the first.
///
/// A conversation moves at once: to a stronger model (by the catalog's quality, else by cost); where its model is no
/// longer feasible (a limit goes before a habit) or no longer in the catalog. It moves to one that is not stronger after
/// `patience` turns in a row that asked for it. A held decision says so in [`Decision::pinned`]; its source, reason and
/// scores stay those of the turn.
#[must_use]
pub fn hold(
    mut decision: Decision,
    conversation: Option<&Conversation>,
    patience: u32,
    catalog: &Catalog,
) -> (Decision, Option<Conversation>) {
    let Some(proposed) = decision.model().map(str::to_owned) else {
        return (decision, conversation.cloned());
    };
    let moved = |decision| (decision, Some(Conversation { model: proposed.clone(), held: 0 }));
    let Some(before) = conversation.filter(|before| before.model != proposed) else { return moved(decision) };
    let (Some(now), Some(then)) = (catalog.get(&proposed), catalog.get(&before.model)) else {
        return moved(decision);
    };
    // That the turn's source did not consider it is no limit.
    let place = decision.candidates.iter().position(|candidate| {
        let soft = matches!(candidate.why_not, None | Some(WhyNot::Untrained | WhyNot::NotForTask));
        candidate.model == then.id && soft
    });
    let Some(place) = place else { return moved(decision) };
    let stronger = match (now.quality, then.quality) {
        (Some(now), Some(then)) => now > then,
        _ => now.cost_per_1k > then.cost_per_1k,
    };
    let held = before.held.saturating_add(1);
    if stronger || held >= patience {
        return moved(decision);
    }
    let mut kept = decision.candidates.remove(place);
    (kept.feasible, kept.why_not) = (true, None);
    decision.route = match &then.backend {
        Backend::Cloud { provider } => Route::Cloud { provider: provider.clone(), model: then.id.clone() },
        Backend::Local { .. } if kept.running => Route::Reuse { model: then.id.clone() },
        Backend::Local { est_bytes } => {
            Route::LoadLocal { model: then.id.clone(), est_bytes: est_bytes.unwrap_or(0) }
        }
    };
    if !then.levels.contains(&decision.level) {
        decision.level = then.levels.first().copied().unwrap_or_default();
    }
    decision.candidates.insert(0, kept);
    decision.pinned = true;
    decision.confidence = super::Confidence::default();
    (decision, Some(Conversation { model: then.id.clone(), held }))
}

#[cfg(test)]
mod tests {
    use super::super::{Absent, Context, Evidence, Limits, decide};
    use super::*;
    use crate::catalog::Task;
    use crate::policy::Policy;
    use crate::rules::{Classified, Cue};

    fn catalog() -> Catalog {
        let rows = "
- {id: tiny, backend: cloud, provider: p, tasks: [cheap_chat, general], cost_per_1k: 0.001}
- {id: peer, backend: cloud, provider: p, tasks: [math], cost_per_1k: 0.01}
- {id: coder, backend: cloud, provider: p, tasks: [code], cost_per_1k: 0.01}
- {id: sage, backend: cloud, provider: p, tasks: [reasoning], cost_per_1k: 0.05}";
        Catalog::parse(rows.as_bytes(), "c").unwrap()
    }

    fn turn(task: Task, limits: &Limits, before: Option<&Conversation>) -> (Decision, Option<Conversation>) {
        let rules = Classified { task, cue: Cue::Text, tokens: 10 };
        let evidence = Evidence { rules, has_media: false, heads: Err(Absent::RulesOnly) };
        let decision = decide(&evidence, &catalog(), &Policy::default(), limits, &Context::default());
        hold(decision, before, PATIENCE, &catalog())
    }

    fn play(tasks: &[Task]) -> Vec<(String, bool)> {
        let mut before = None;
        let turns = tasks.iter().map(|&task| {
            let (decision, after) = turn(task, &Limits::default(), before.as_ref());
            before = after;
            (decision.model().unwrap().to_owned(), decision.pinned)
        });
        turns.collect()
    }

    #[test]
    fn h8_up_at_once_down_slowly() {
        use Task::{CheapChat, Code, Math, Reasoning};
        let said = |turns: &[(&str, bool)]| turns.iter().map(|&(m, p)| (m.to_owned(), p)).collect::<Vec<_>>();
        // "commit it" stays where the work is; a third small turn in a row moves.
        assert_eq!(
            play(&[Code, CheapChat, CheapChat, CheapChat, CheapChat]),
            said(&[("coder", false), ("coder", true), ("coder", true), ("tiny", false), ("tiny", false)])
        );
        // A turn of work in between begins the count anew.
        assert_eq!(
            play(&[Code, CheapChat, CheapChat, Code, CheapChat, CheapChat]),
            said(&[
                ("coder", false),
                ("coder", true),
                ("coder", true),
                ("coder", false),
                ("coder", true),
                ("coder", true)
            ])
        );
        assert_eq!(
            play(&[CheapChat, Code, Reasoning, Code]),
            said(&[("tiny", false), ("coder", false), ("sage", false), ("sage", true)])
        );
        // Sideways is no gain.
        assert_eq!(play(&[Code, Math]), said(&[("coder", false), ("coder", true)]));
    }

    #[test]
    fn h8_a_limit_goes_before_a_habit() {
        let (_, before) = turn(Task::Reasoning, &Limits::default(), None);
        let cheap = Limits { max_cost: Some(0.02), ..Limits::default() };
        let (decision, after) = turn(Task::Code, &cheap, before.as_ref());
        assert_eq!((decision.model(), decision.pinned), (Some("coder"), false));
        assert_eq!(after.unwrap(), Conversation { model: "coder".into(), held: 0 });
        // No fit changes nothing of what is remembered.
        let none = Limits { max_cost: Some(-1.0), ..Limits::default() };
        let (decision, after) = turn(Task::Code, &none, before.as_ref());
        assert_eq!((decision.model(), after), (None, before.clone()));
        // A model that has left the catalog.
        let gone = Conversation { model: "gone".into(), held: 1 };
        let (decision, _) = turn(Task::CheapChat, &Limits::default(), Some(&gone));
        assert_eq!((decision.model(), decision.pinned), (Some("tiny"), false));
    }

    #[test]
    fn a_held_decision_stays_whole() {
        let (_, before) = turn(Task::Code, &Limits::default(), None);
        let (decision, _) = turn(Task::CheapChat, &Limits::default(), before.as_ref());
        assert_eq!(decision.candidates[0].model, "coder");
        assert_eq!(decision.candidates.len(), 4);
        assert!(decision.candidates.iter().all(|c| c.feasible == c.why_not.is_none()));
        let value = serde_json::to_value(&decision).unwrap();
        assert_eq!((&value["pinned"], &value["route"]), (&true.into(), &"cloud".into()));
    }
}
