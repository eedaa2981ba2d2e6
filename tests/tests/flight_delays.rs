//! The demo's table against a plain program that knows nothing of weir: the same CSV, a map, and a loop.
//!
//! This also holds how CSV fields are typed: `NA` and empty fields become null, which counts in `count` and not in `values`,
//! and takes no part in a mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// What one hour of one carrier comes to.
#[derive(Debug, Default, PartialEq)]
struct Hour {
    count: u64,
    values: u64,
    sum: f64,
    worst: Option<f64>,
}

/// By hour (as text, which is what the file has) and carrier.
type Hours = BTreeMap<(String, String), Hour>;

/// Reads the CSV by splitting lines at commas: this file has no quotes, which is asserted.
fn plain(csv: &Path) -> Hours {
    let text = fs::read_to_string(csv).expect("the data is there");
    assert!(!text.contains('"'));
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let column = |name: &str| header.iter().position(|field| *field == name).expect("the column is there");
    let (hour, carrier, delay) = (column("time_hour"), column("carrier"), column("dep_delay"));
    let mut hours = Hours::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let entry = hours.entry((fields[hour].into(), fields[carrier].into())).or_default();
        entry.count += 1;
        if fields[delay] != "NA" {
            let minutes: f64 = fields[delay].parse().expect("a number");
            entry.values += 1;
            entry.sum += minutes;
            entry.worst = Some(entry.worst.map_or(minutes, |worst| worst.max(minutes)));
        }
    }
    hours
}

fn published(out: &Path) -> Hours {
    let mut hours = Hours::new();
    for row in weir_tests::json_lines(out) {
        let text = |name: &str| row[name].as_str().unwrap_or_else(|| panic!("{name} in {row}")).to_owned();
        let values = row["values"].as_u64().expect("values");
        let hour = Hour {
            count: row["count"].as_u64().expect("count"),
            values,
            sum: row["mean"].as_f64().unwrap_or(0.0) * values as f64,
            worst: row["max"].as_f64(),
        };
        assert_eq!(row["mean"] == Value::Null, values == 0, "{row}");
        let before = hours.insert((text("window_start"), text("carrier")), hour);
        assert!(before.is_none(), "two rows for {row}");
    }
    hours
}

#[test]
fn the_demo_gives_what_a_plain_program_gets_from_the_same_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = weir_tests::root().join("examples/flight-delays");
    let pipeline = fs::read_to_string(example.join("pipeline.toml")).expect("the example is there");
    let unpaced: String =
        pipeline.lines().filter(|line| !line.starts_with("rate")).map(|line| format!("{line}\n")).collect();
    assert_ne!(pipeline, unpaced, "the example is paced, the test is not");
    fs::write(folder.path().join("pipeline.toml"), unpaced).expect("the pipeline can be written");
    fs::create_dir(folder.path().join("data")).expect("a folder");
    fs::copy(weir_tests::january(), folder.path().join("data/flights-2013-01.csv")).expect("the data can be copied");

    let (code, _, stderr) = weir_tests::run(folder.path(), &["run", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");

    let (expected, got) = (plain(&weir_tests::january()), published(&folder.path().join("out")));
    assert_eq!(expected.values().map(|hour| hour.count).sum::<u64>(), 27_004, "every row of the file");
    assert!(expected.values().any(|hour| hour.count > hour.values), "some flights were cancelled");
    assert_eq!(expected.keys().collect::<Vec<_>>(), got.keys().collect::<Vec<_>>());
    for (key, expected) in &expected {
        let got = &got[key];
        assert_eq!((expected.count, expected.values, expected.worst), (got.count, got.values, got.worst), "{key:?}");
        assert!((expected.sum - got.sum).abs() < 1e-6 * expected.sum.abs().max(1.0), "{key:?}");
    }

    // A second run says that there is nothing to do, and changes nothing.
    let (code, _, stderr) = weir_tests::run(folder.path(), &["run", "pipeline.toml"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("has finished before"), "{stderr}");
    assert_eq!(published(&folder.path().join("out")).len(), expected.len());
}
