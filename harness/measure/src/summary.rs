//! What a sweep says in the end, in words.

use std::fmt::Write as _;

use results::row::{Row, Status};
use results::statistics::Summary;
use results::units::mib;

/// Horovod's default settings: fusion threshold in MiB, cycle time in ms, since when.
pub const HOROVOD_DEFAULTS: [(usize, f64, &str); 2] =
    [(128, 1.0, "Horovod's default since v0.21"), (64, 5.0, "Horovod's default before")];

/// The sentence under every result that does not rest on the data plane that Horovod would use.
pub const SCOPE: &str = "best for this engine on this machine, not for a cluster";

/// The summary of a sweep's rows, one part per topology.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| key(group[0]) == key(row);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.iter().for_each(|group| part(group, &mut text));
    for row in rows.iter().filter(|row| row.status != Status::Ok) {
        let status = match row.status {
            Status::Wrong => "WRONG",
            Status::Failed => "failed",
            _ => "unsupported",
        };
        let _ = writeln!(text, "{status:<11} {}: {}", row.case, row.reason);
    }
    text
}

/// The best rows and those tied with it: their intervals overlap. Best first.
pub fn best_and_tied<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    let mut ranked: Vec<(Summary, &Row)> = rows
        .iter()
        .filter(|row| row.status == Status::Ok)
        .filter_map(|row| Some((times(row)?, *row)))
        .collect();
    ranked.sort_by(|(a, _), (b, _)| a.p50.total_cmp(&b.p50));
    let Some((best, _)) = ranked.first().cloned() else {
        return Vec::new();
    };
    ranked.into_iter().filter(|(time, _)| time.tied_with(&best)).map(|(_, row)| row).collect()
}

fn times(row: &Row) -> Option<Summary> {
    Some(Summary {
        p50: row.time_us_p50?,
        p50_interval: row.time_us_p50_low.zip(row.time_us_p50_high),
        ..Summary::default()
    })
}

fn key(row: &Row) -> (&str, &str, usize, Option<usize>, usize) {
    (&row.workload, &row.transport, row.nodes, row.local_size, row.ranks)
}

fn part(rows: &[&Row], text: &mut String) {
    let row = rows[0];
    let mut notes = Vec::new();
    if let Some(passes) = row.backward_passes_per_step.filter(|&passes| passes > 1) {
        notes.push(format!("{passes} backward passes per step"));
    }
    if !matches!(row.compression.as_str(), "" | "none") {
        notes.push(format!("{} cast to {}", row.dtype, row.compression));
    }
    if row.emulated {
        notes.push("nodes are emulated".into());
    }
    if row.oversubscribed {
        notes.push("more ranks than cores".into());
    }
    let _ = writeln!(
        text,
        "{}: {} gradients, {:.1} MB, {} ranks on {} node{} over {}{}{}; step time, median with \
         exact 95 % interval",
        row.workload,
        row.tensors,
        row.size_bytes as f64 / 1e6,
        row.ranks,
        row.nodes,
        if row.nodes == 1 { "" } else { "s" },
        row.transport,
        if notes.is_empty() { "" } else { "; " },
        notes.join(", "),
    );
    let tied = best_and_tied(rows);
    let Some((best, others)) = tied.split_first() else {
        let _ = writeln!(text, "  no case was measured and right");
        return;
    };
    if best.time_us_p50_low.is_none() {
        let _ = writeln!(
            text,
            "  fewer than 6 steps per case: no interval, so nothing can be ranked; the shortest was"
        );
        line(best, "", text);
        return;
    }
    line(best, "best", text);
    for row in others.iter().take(8) {
        line(row, "tied", text);
    }
    if others.len() > 8 {
        let _ = writeln!(text, "  tied  and {} more, see rows.csv", others.len() - 8);
    }
    for (mib, ms, since) in HOROVOD_DEFAULTS {
        let default = |row: &&&Row| {
            row.fusion_threshold_bytes == Some(mib << 20)
                && row.cycle_time_ms == Some(ms)
                && (&row.control_plane, &row.algorithm) == (&best.control_plane, &best.algorithm)
        };
        match rows.iter().find(default) {
            Some(row) => line(row, since, text),
            None => {
                let _ = writeln!(text, "  {since} ({mib} MiB, {ms} ms) is not among the cases");
            }
        }
    }
    let _ = writeln!(text, "  ({SCOPE})");
}

fn line(row: &Row, remark: &str, text: &mut String) {
    let ms = |us: Option<f64>| us.map_or("?".into(), |us| format!("{:.1}", us / 1e3));
    let threshold = mib(row.fusion_threshold_bytes.unwrap_or(0));
    let interval = match (row.time_us_p50_low, row.time_us_p50_high) {
        (Some(_), Some(_)) => {
            format!(" [{}, {}]", ms(row.time_us_p50_low), ms(row.time_us_p50_high))
        }
        _ => String::new(),
    };
    let (tag, remark) = match remark {
        "best" | "tied" | "" => (remark, ""),
        since => ("", since),
    };
    let line = format!(
        "  {tag:<5} {:>7} ms{interval:<18} {:<12} {:<18} {:>5} MiB  {:>4} ms  {:>5} messages  {remark}",
        ms(row.time_us_p50),
        row.control_plane,
        row.algorithm,
        threshold,
        row.cycle_time_ms.unwrap_or(0.0),
        row.messages_p50.unwrap_or(0.0),
    );
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(algorithm: &str, mib: usize, ms: f64, low: f64, high: f64) -> Row {
        Row {
            case: format!("{algorithm}/{mib}/{ms}"),
            algorithm: algorithm.into(),
            control_plane: "bitvector".into(),
            workload: "tiny".into(),
            ranks: 4,
            nodes: 2,
            local_size: Some(2),
            fusion_threshold_bytes: Some(mib << 20),
            cycle_time_ms: Some(ms),
            time_us_p50: Some((low + high) / 2.0),
            time_us_p50_low: Some(low),
            time_us_p50_high: Some(high),
            ..Row::default()
        }
    }

    #[test]
    fn best_tied_and_defaults_are_named() {
        let rows = [
            row("ring", 128, 1.0, 30e3, 32e3),
            row("ring", 64, 5.0, 40e3, 44e3),
            row("ring", 2, 1.0, 20e3, 22e3),
            row("tree", 2, 1.0, 21e3, 29e3),
            Row { status: Status::Wrong, reason: "3 wrong".into(), ..row("x", 1, 1.0, 1.0, 2.0) },
        ];
        let text = text(&rows);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("best") && lines[1].contains("21.0 ms [20.0, 22.0]"), "{text}");
        assert!(lines[2].contains("tied") && lines[2].contains("tree"), "{text}");
        assert!(lines[3].ends_with("since v0.21") && lines[3].contains("31.0 ms"), "{text}");
        assert!(lines[4].ends_with("before") && lines[4].contains("42.0 ms"), "{text}");
        assert!(lines[5].contains(SCOPE) && lines[6].starts_with("WRONG       x/1/1: 3 wrong"));
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn without_intervals_nothing_is_ranked() {
        let mut row = row("ring", 2, 1.0, 1.0, 2.0);
        (row.time_us_p50_low, row.time_us_p50_high) = (None, None);
        let text = text(&[row]);
        assert!(text.contains("nothing can be ranked") && !text.contains("best "), "{text}");
    }

    #[test]
    fn a_missing_default_is_said() {
        let text = text(&[row("ring", 2, 1.0, 1.0, 2.0)]);
        assert!(text.contains("before (64 MiB, 5 ms) is not among the cases"), "{text}");
    }
}
