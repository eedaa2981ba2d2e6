//! An operator of the smaller world, which leaves its state to the host: it hands on what comes in, and has no state or says that it has.

use exports::weir::plugin::processor::{Batch, Descriptor, Failure, Guest, Progress, TaskInfo};
use weir::plugin::output;
use weir::plugin::types::{Port, StateKind};

wit_bindgen::generate!({ world: "simple-operator", path: "../../../wit" });

/// Whether it says that it has state; a test writes another word over the one that the component holds.
#[used]
static STATE: [u8; 16] = *b"plain-state=none";

struct Plain;

export!(Plain);

impl Guest for Plain {
    fn describe() -> Descriptor {
        let word: Vec<u8> = STATE.iter().map(|byte| unsafe { std::ptr::read_volatile(byte) }).collect();
        let port = |name: &str| Port { name: name.to_owned(), summary: String::new(), keyed: false };
        Descriptor {
            name: "plain".to_owned(),
            version: "1.0.0".to_owned(),
            summary: String::new(),
            inputs: vec![port("in")],
            outputs: vec![port("out")],
            state: if word.ends_with(b"none") { StateKind::Stateless } else { StateKind::Whole },
            state_version: 0,
            oldest_state_version: 0,
            config_schema: None,
            attributes: Vec::new(),
        }
    }

    fn open(_config: String, _task: TaskInfo) -> Result<(), Failure> {
        Ok(())
    }

    fn process(_port: u32, input: Batch) -> Result<Progress, Failure> {
        output::emit(0, &input);
        Ok(Progress::Done)
    }

    fn advance(_watermark: i64) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn wake() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn finish(_port: u32) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn resume() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }
}
