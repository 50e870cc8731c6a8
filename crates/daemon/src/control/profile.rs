//! How long requests of a volume take, and what is asked for most: collected from every server that has one of its bricks.

use super::Control;
use super::answers::conflict;
use super::protocol::{ClusterReply, ClusterRequest};
use super::volumes::volume;
use crate::clock;
use crate::metrics::{BOUNDS, SetCounts, Span, Times};
use crate::shard::{ShardMessage, TopObject};
use admin::{
    AdminError, LatencyClass, OperationProfile, ProfileAction, ProfileReport, ProfileSpan, SetProfile,
    TopLine, TopReport,
};
use ids::SetId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Control {
    /// Begins, ends or looks at the profile of a volume on this server.
    pub(super) fn own_profile(&self, name: &str, action: ProfileAction) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let volume = volume(&state, name)?;
        let (metrics, now) = (&self.shared.metrics, clock::now());
        let counts = metrics.counts_of(volume.sets.iter().copied());
        let spans = match action {
            ProfileAction::Start => {
                metrics.profiles.start(now, volume.id, counts);
                None
            }
            ProfileAction::Stop => {
                metrics.profiles.stop(volume.id);
                None
            }
            ProfileAction::Info => metrics.profiles.look(now, volume.id, &counts),
        };
        Ok(ClusterReply::Profile(spans.map(|(all, new)| (told(&all), told(&new)))))
    }

    pub(super) async fn volume_profile(
        &self,
        name: String,
        action: ProfileAction,
    ) -> Result<ProfileReport, AdminError> {
        let state = self.linearizable().await?;
        let of = (&*state, volume(&state, &name)?);
        let request = ClusterRequest::Profile { volume: name.clone(), action };
        let (replies, mut notes) = self.ask_servers_of(of, &request).await;
        let (mut spans, mut silent) = (Vec::new(), 0);
        for reply in replies {
            match reply {
                ClusterReply::Profile(Some(both)) => spans.push(both),
                _ => silent += 1,
            }
        }
        if action != ProfileAction::Info {
            let running = action == ProfileAction::Start;
            return Ok(ProfileReport { name, running, notes, ..ProfileReport::default() });
        }
        if spans.is_empty() && notes.is_empty() {
            let line =
                format!("volume {name} is not being profiled: begin with mortar volume profile {name} start");
            return Err(conflict(line));
        }
        if silent > 0 {
            notes.push(format!(
                "{silent} servers were started after the profile began, and tell nothing: begin it anew with mortar volume \
                 profile {name} start"
            ));
        }
        let (all, new): (Vec<_>, Vec<_>) = spans.into_iter().unzip();
        let (mut total, mut interval) = (merged(all), merged(new));
        for set in total.sets.iter_mut().chain(&mut interval.sets) {
            set.set = state.named(set.set.id).set;
        }
        Ok(ProfileReport { name, running: true, total, interval, notes })
    }

    /// What of a volume is asked for most at this server. It counts from now on, for as long as somebody looks.
    pub(super) async fn own_top(&self, name: &str) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let sets: BTreeSet<SetId> = volume(&state, name)?.sets.iter().copied().collect();
        let mut top = TopReport { name: name.to_owned(), ..TopReport::default() };
        for (set, report) in self.ask_shards(|to| ShardMessage::Top(sets.clone(), to)).await {
            top.files.extend(report.files.into_iter().map(|o| line(set, o)));
            top.bytes.extend(report.bytes.into_iter().map(|o| line(set, o)));
            top.directories.extend(report.directories.into_iter().map(|o| line(set, o)));
        }
        Ok(ClusterReply::Top(top))
    }

    pub(super) async fn volume_top(&self, name: String) -> Result<TopReport, AdminError> {
        let state = self.linearizable().await?;
        let of = (&*state, volume(&state, &name)?);
        let request = ClusterRequest::Top { volume: name.clone() };
        let (replies, notes) = self.ask_servers_of(of, &request).await;
        let clients = self.volume_clients(name.clone()).await?.clients;
        let mut top = TopReport { name, clients, notes, ..TopReport::default() };
        for reply in replies {
            if let ClusterReply::Top(theirs) = reply {
                top.files.extend(theirs.files);
                top.bytes.extend(theirs.bytes);
                top.directories.extend(theirs.directories);
            }
        }
        for all in [&mut top.files, &mut top.bytes, &mut top.directories] {
            all.iter_mut().for_each(|l| l.set = state.named(l.set.id).set);
            all.sort_by_key(|l| std::cmp::Reverse(l.count));
        }
        Ok(top)
    }
}

fn line(set: SetId, o: TopObject) -> TopLine {
    let path = o.path.unwrap_or_else(|| format!("<{}>", o.fid));
    TopLine { path, set: set.into(), count: o.count, error: o.error }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

/// A span in the words of the admin protocol.
fn told(span: &Span) -> ProfileSpan {
    let sets = span.sets.iter().map(|(set, counts)| of_set(*set, counts)).collect();
    ProfileSpan { milliseconds: millis(span.length), sets }
}

fn of_set(set: SetId, c: &SetCounts) -> SetProfile {
    SetProfile {
        set: set.into(),
        read_bytes: c.read,
        written_bytes: c.written,
        failures: c.failures.iter().filter(|(_, n)| *n > 0).map(|(r, n)| ((*r).to_owned(), *n)).collect(),
        operations: c.times.iter().map(|(name, times)| of_operation(name, times)).collect(),
    }
}

fn of_operation(name: &str, times: &Times) -> OperationProfile {
    let ends = BOUNDS.iter().map(|end| Some(micros(*end))).chain([None]);
    let classes =
        ends.zip(&times.classes).map(|(at_most_us, calls)| LatencyClass { at_most_us, calls: *calls });
    let total_us = times.nanos / 1000;
    OperationProfile {
        operation: name.to_owned(),
        calls: times.count(),
        total_us,
        classes: classes.collect(),
        ..OperationProfile::default()
    }
}

/// What several servers counted in the same span: after a failover two of them served a set.
fn merged(spans: Vec<ProfileSpan>) -> ProfileSpan {
    let mut sets: BTreeMap<SetId, SetProfile> = BTreeMap::new();
    let mut milliseconds = 0;
    for span in spans {
        milliseconds = milliseconds.max(span.milliseconds);
        for theirs in span.sets {
            let set = sets
                .entry(theirs.set.id)
                .or_insert_with(|| SetProfile { set: theirs.set, ..SetProfile::default() });
            set.read_bytes = set.read_bytes.saturating_add(theirs.read_bytes);
            set.written_bytes = set.written_bytes.saturating_add(theirs.written_bytes);
            for (reason, n) in theirs.failures {
                let sum = set.failures.entry(reason).or_default();
                *sum = sum.saturating_add(n);
            }
            theirs.operations.into_iter().for_each(|o| add(&mut set.operations, o));
        }
    }
    let mut sets: Vec<SetProfile> = sets.into_values().filter(|s| !s.operations.is_empty()).collect();
    for set in &mut sets {
        set.operations.sort_by_key(|o| std::cmp::Reverse(o.total_us));
        for o in &mut set.operations {
            (o.p50_us, o.p99_us) = (percentile(o, 50), percentile(o, 99));
        }
    }
    ProfileSpan { milliseconds, sets }
}

fn add(all: &mut Vec<OperationProfile>, theirs: OperationProfile) {
    let Some(known) = all.iter_mut().find(|o| o.operation == theirs.operation) else {
        all.push(theirs);
        return;
    };
    known.calls = known.calls.saturating_add(theirs.calls);
    known.total_us = known.total_us.saturating_add(theirs.total_us);
    for (class, theirs) in known.classes.iter_mut().zip(theirs.classes) {
        class.calls = class.calls.saturating_add(theirs.calls);
    }
}

/// The end of the class in which that percentage of the calls is reached.
fn percentile(o: &OperationProfile, percent: u64) -> Option<u64> {
    let wanted = u128::from(o.calls) * u128::from(percent);
    let mut sum = 0;
    let reached = o.classes.iter().find(|c| {
        sum += u128::from(c.calls) * 100;
        sum >= wanted
    });
    reached.and_then(|c| c.at_most_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(calls: &[(u64, u64)]) -> OperationProfile {
        let all = calls.iter().map(|(end, calls)| LatencyClass { at_most_us: Some(*end), calls: *calls });
        let classes = all.chain([LatencyClass { at_most_us: None, calls: 0 }]).collect();
        let sum = calls.iter().map(|(_, n)| n).sum();
        OperationProfile {
            operation: "read".to_owned(),
            calls: sum,
            total_us: sum,
            classes,
            ..OperationProfile::default()
        }
    }

    #[test]
    fn percentiles_are_ends_of_classes() {
        let o = operation(&[(100, 50), (250, 49), (500, 1)]);
        assert_eq!(
            (percentile(&o, 50), percentile(&o, 99), percentile(&o, 100)),
            (Some(100), Some(250), Some(500))
        );
    }

    #[test]
    fn what_two_servers_counted_of_a_set_adds_up() {
        let span = |calls, length| ProfileSpan {
            milliseconds: length,
            sets: vec![SetProfile {
                set: SetId(1).into(),
                read_bytes: 5,
                operations: vec![operation(&[(100, calls)])],
                ..SetProfile::default()
            }],
        };
        let all = merged(vec![span(3, 10), span(4, 12)]);
        assert_eq!((all.milliseconds, all.sets.len(), all.sets[0].read_bytes), (12, 1, 10));
        let o = &all.sets[0].operations[0];
        assert_eq!((o.calls, o.classes[0].calls, o.p99_us), (7, 7, Some(100)));
    }
}
