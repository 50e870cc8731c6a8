//! Metrics as text, in Prometheus' exposition format 0.0.4.

use super::families::{FAMILIES, Kind, Metric};
use super::histogram::{BOUNDS, Times};
use std::fmt::{Display, Write};

/// What a server says of itself at one time.
#[derive(Debug)]
pub(crate) struct Exposition {
    /// The samples of each family, in the order of [`FAMILIES`].
    samples: Vec<String>,
}

impl Exposition {
    pub(crate) fn new() -> Exposition {
        Exposition { samples: vec![String::new(); FAMILIES.len()] }
    }

    /// One more sample, with a value for each label that the metric has.
    pub(crate) fn add(&mut self, metric: Metric, labels: &[&str], value: impl Display) {
        let labels = written(metric, labels, None);
        self.line(metric, "", &labels, &value);
    }

    /// The same for a histogram.
    pub(crate) fn add_times(&mut self, metric: Metric, labels: &[&str], times: &Times) {
        let mut many = 0;
        let ends = BOUNDS.iter().map(|end| end.as_secs_f64().to_string()).chain(["+Inf".to_owned()]);
        for (end, n) in ends.zip(&times.classes) {
            many += n;
            let with_end = written(metric, labels, Some(&end));
            self.line(metric, "_bucket", &with_end, &many);
        }
        let labels = written(metric, labels, None);
        let seconds = std::time::Duration::from_nanos(times.nanos).as_secs_f64();
        self.line(metric, "_sum", &labels, &seconds);
        self.line(metric, "_count", &labels, &many);
    }

    fn line(&mut self, metric: Metric, suffix: &str, labels: &str, value: &dyn Display) {
        let Some((family, samples)) =
            FAMILIES.get(metric as usize).zip(self.samples.get_mut(metric as usize))
        else {
            return;
        };
        // Writing into a string does not fail.
        let _ = writeln!(samples, "{}{suffix}{labels} {value}", family.name);
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (family, samples) in FAMILIES.iter().zip(&self.samples).filter(|(_, s)| !s.is_empty()) {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let (name, help) = (family.name, family.help);
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

/// Labels as they are written; nothing if there are none.
fn written(metric: Metric, values: &[&str], end: Option<&str>) -> String {
    let names = FAMILIES.get(metric as usize).map_or(&[][..], |f| f.labels);
    assert_eq!(names.len(), values.len(), "{metric:?}: a value for each label");
    let all = names.iter().copied().zip(values.iter().copied()).chain(end.map(|end| ("le", end)));
    let all: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_beneath_their_family() {
        let mut e = Exposition::new();
        e.add(Metric::BrickUp, &["v", "1", "h:/a \"b\"\\\n"], 1);
        e.add(Metric::Connections, &[], 3);
        e.add(Metric::BrickUp, &["v", "1", "h:/c"], 0);
        let text = e.text();
        assert!(text.contains("# TYPE mortar_connections gauge\nmortar_connections 3\n"), "{text}");
        let up = "mortar_brick_up{volume=\"v\",set=\"1\",brick=\"h:/a \\\"b\\\"\\\\\\n\"} 1\n\
                  mortar_brick_up{volume=\"v\",set=\"1\",brick=\"h:/c\"} 0\n";
        assert!(text.contains(up), "{text}");
    }

    #[test]
    fn classes_of_a_histogram_add_up() {
        let times = Times { classes: (0..14).collect(), nanos: 1_500_000_000 };
        let mut e = Exposition::new();
        e.add_times(Metric::RequestDuration, &["v", "1", "read"], &times);
        let text = e.text();
        let labels = "volume=\"v\",set=\"1\",operation=\"read\"";
        for line in [
            format!("mortar_request_duration_seconds_bucket{{{labels},le=\"0.0001\"}} 0\n"),
            format!("mortar_request_duration_seconds_bucket{{{labels},le=\"0.0005\"}} 3\n"),
            format!("mortar_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 91\n"),
            format!("mortar_request_duration_seconds_sum{{{labels}}} 1.5\n"),
            format!("mortar_request_duration_seconds_count{{{labels}}} 91\n"),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
