#![no_main]
wit_bindgen::generate!({ world: "stateful-operator", path: "../../../wit" , generate_all});
use exports::weir::plugin::{processor, checkpoint};
struct G;
impl processor::Guest for G {
    fn describe() -> processor::Descriptor { todo!() }
    fn open(config: String, task: processor::TaskInfo) -> Result<(), processor::Failure> { Ok(()) }
    fn process(port: u32, input: processor::Batch) -> Result<processor::Progress, processor::Failure> { todo!() }
    fn advance(w: i64) -> Result<processor::Progress, processor::Failure> { todo!() }
    fn wake() -> Result<processor::Progress, processor::Failure> { todo!() }
    fn finish(port: u32) -> Result<processor::Progress, processor::Failure> { todo!() }
    fn resume() -> Result<processor::Progress, processor::Failure> { todo!() }
}
impl checkpoint::Guest for G {
    fn snapshot(epoch: u64, mode: checkpoint::SnapshotMode) -> Result<checkpoint::Progress, processor::Failure> { todo!() }
    fn restore(v: u32) -> Result<(), processor::Failure> { todo!() }
}
export!(G);
