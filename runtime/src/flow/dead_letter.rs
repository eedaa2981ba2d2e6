//! Dead letters: what a rejected record looks like on the port `rejected`.
//!
//! The record itself, where it came from and why it was put aside, as one JSON object, so that any sink can keep it and a
//! person can read it. Keys and values that are not UTF-8 are kept in base64: nothing is lost.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value};

use crate::model::{Batch, NO_TIME, TaskId};

/// Makes a dead letter of each record of `rejected`; record `i` was put aside for `reasons[i]`.
pub(super) fn dead_letters(task: &TaskId, rejected: &Batch, reasons: &[String]) -> Batch {
    let mut letters = Batch::default();
    for (row, &time) in rejected.timestamps.iter().enumerate() {
        let mut letter = Map::new();
        letter.insert("node".into(), task.node.as_str().into());
        letter.insert("subtask".into(), task.subtask.into());
        letter.insert("reason".into(), reasons.get(row).map_or("", String::as_str).into());
        letter.insert("event_time".into(), if time == NO_TIME { Value::Null } else { time.into() });
        put(&mut letter, "key", rejected.keys.get(row));
        put(&mut letter, "value", rejected.values.get(row));
        if let Some(headers) = rejected.headers.get(row).filter(|headers| !headers.is_empty()) {
            letter.insert("headers_base64".into(), BASE64_STANDARD.encode(headers).into());
        }
        let value = Value::Object(letter).to_string();
        letters.push(time, rejected.keys.get(row), Some(value.as_bytes()));
    }
    letters
}

/// Adds bytes under `name` if they are text, else in base64 under `name_base64`.
fn put(letter: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => letter.insert(name.into(), Value::Null),
        Some((_, Ok(text))) => letter.insert(name.into(), text.into()),
        Some((bytes, Err(_))) => letter.insert(format!("{name}_base64"), BASE64_STANDARD.encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeName;

    #[test]
    fn a_dead_letter_keeps_the_record_its_origin_and_the_reason() {
        let mut batch = Batch::default();
        batch.push(5, Some(b"k"), Some(b"{broken"));
        batch.push(NO_TIME, None, Some(&[0xff, 0, 1]));
        let task = TaskId { node: NodeName::new("parse"), subtask: 3 };
        let letters = dead_letters(&task, &batch, &["no JSON".into(), "no text".into()]);
        assert_eq!(letters.validate(), Ok(()));
        let read = |row| serde_json::from_slice::<Value>(letters.values.get(row).unwrap()).unwrap();
        assert_eq!(
            read(0),
            serde_json::json!({"node":"parse","subtask":3,"reason":"no JSON","event_time":5,"key":"k","value":"{broken"})
        );
        assert_eq!(read(1)["value_base64"], "/wAB");
        assert_eq!(read(1)["event_time"], Value::Null);
    }
}
