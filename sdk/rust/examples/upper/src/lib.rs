//! Turns the ASCII letters of values into capitals, and rejects long values. See `sdk/conformance`.

use weir_sdk::{BatchBuilder, BatchView, Descriptor, Failure, Operator, Output, Progress, TaskInfo};

const VALUE_MAX: usize = 80;

#[derive(Default)]
struct Upper {
    out: BatchBuilder,
}

impl Operator for Upper {
    fn descriptor() -> Descriptor {
        Descriptor::new("upper", env!("CARGO_PKG_VERSION"))
            .summary("Turns the ASCII letters of values into capitals.")
            .input("in", "any records")
            .output("out", "the same with capitals")
    }

    fn open(_config: &str, _task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self::default())
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        self.out.clear();
        for record in batch.records() {
            let Some(value) = record.value() else {
                self.out.push_record(&record);
                continue;
            };
            if value.len() > VALUE_MAX {
                out.reject(record.index(), &format!("the value has {} bytes, more than {VALUE_MAX}", value.len()));
                continue;
            }
            self.out.push(record.time(), record.key(), Some(&value.to_ascii_uppercase()));
        }
        out.emit(0, &self.out);
        Ok(Progress::Done)
    }
}

weir_sdk::export_simple!(Upper);
