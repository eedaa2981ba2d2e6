//! Splits lines into words: a record for each word of a line, in lower case, with the word as its key and its value.
//!
//! A word is a run of letters and digits, of any script. It keeps the event time of its line. There is no state, so a checkpoint
//! holds nothing of this operator and it needs no code for one. A line that is not UTF-8 is rejected.

use weir_sdk::{BatchBuilder, BatchView, Descriptor, Failure, Operator, Output, Progress, TaskInfo};

/// The operator. Both fields are kept only for their memory.
#[derive(Debug)]
pub struct Split {
    word: String,
    out: BatchBuilder,
}

impl Operator for Split {
    fn descriptor() -> Descriptor {
        Descriptor::new("split", env!("CARGO_PKG_VERSION"))
            .summary("Splits lines into words.")
            .input("in", "lines of text")
            // Keyed: this promises that every record has a key, so that `count` can be put behind it.
            .keyed_output("out", "words in lower case; key and value are the word")
    }

    fn open(_config: &str, _task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self { word: String::new(), out: BatchBuilder::new() })
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        self.out.clear();
        for record in batch.records() {
            let Ok(line) = std::str::from_utf8(record.value().unwrap_or_default()) else {
                out.reject(record.index(), "the line is not UTF-8");
                continue;
            };
            for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
                self.word.clear();
                self.word.extend(word.chars().flat_map(char::to_lowercase));
                self.out.push(record.time(), Some(self.word.as_bytes()), Some(self.word.as_bytes()));
            }
        }
        // Once for the whole batch: that is cheaper than once a record.
        out.emit(0, &self.out);
        Ok(Progress::Done)
    }
}

// `export_simple`: an operator without state has no snapshots to write.
weir_sdk::export_simple!(Split);

#[cfg(test)]
mod tests {
    use weir_sdk::testing::{Harness, Row};

    use super::*;

    fn words(line: &str) -> Vec<Row> {
        let mut split = Harness::<Split>::new("{}").expect("it needs no configuration");
        split.process(0, &[Row::of_value(line).at(5)]).expect("it takes any line");
        assert!(split.take_rejected().is_empty());
        split.take(0)
    }

    #[test]
    fn a_line_becomes_a_record_for_each_word_in_lower_case() {
        let word = |word: &str| Row::new(word, word).at(5);
        assert_eq!(
            words("The water, the WATER -- Ünder 2 bridges."),
            [word("the"), word("water"), word("the"), word("water"), word("ünder"), word("2"), word("bridges"),]
        );
        assert_eq!(words(" ,.\t"), []);
    }

    #[test]
    fn a_line_that_is_no_text_is_put_aside() {
        let mut split = Harness::<Split>::new("{}").expect("it needs no configuration");
        split.process(0, &[Row::of_value(b"\xff"), Row::of_value("on")]).expect("it goes on");
        assert_eq!(split.take_rejected().len(), 1);
        assert_eq!(split.take(0), [Row::new("on", "on")]);
    }
}
