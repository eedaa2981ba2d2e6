//! Whether a node's state can be put into the code that the pipeline has for it, where one of the two is an image of memory.
//!
//! Decided from what a manifest says, before a run claims its job. An image fits only the very component that it was taken of, at the same
//! parallelism, and with the same instrumenter: memory knows of no versions. That its configuration is the same is found out
//! when it is put back.

use crate::checkpoint::NodeEntry;
use crate::flow::OperatorCode;

/// Says why a node's state does not fit, if it does not.
pub(super) fn image_fits(node: &NodeEntry, code: &OperatorCode, parallelism: u32) -> Result<(), String> {
    let Some(wrote) = &node.plugin else { return Ok(()) };
    if node.subtasks.iter().all(|subtask| subtask.segments.is_empty()) {
        return Ok(());
    }
    let (name, of) = (node.name.as_str(), &wrote.name);
    match (wrote.image, code.image) {
        (None, None) => Ok(()),
        (Some(_), _) if wrote.digest != code.digest => Err(format!(
            "the state of node {name:?} is an image of the memory of plugin {of:?} {} with digest {}, and the pipeline has one \
             with digest {} there: an image fits only the very component that it was taken of",
            wrote.version,
            short(&wrote.digest),
            short(&code.digest)
        )),
        (Some(then), Some(now)) if then != now => Err(format!(
            "the state of node {name:?} is an image of version {then}, and this weir takes and puts back images of version {now}"
        )),
        (Some(_), Some(_)) if node.parallelism != parallelism => Err(format!(
            "the state of node {name:?} is an image of its memory at parallelism {}, and the pipeline has {parallelism}: an image \
             cannot be divided",
            node.parallelism
        )),
        (Some(_), Some(_)) => Ok(()),
        (Some(_), None) => Err(format!(
            "the state of node {name:?} is an image of the memory of plugin {of:?}, and the pipeline's writes its state itself"
        )),
        (None, Some(_)) => Err(format!(
            "plugin {of:?} wrote the state of node {name:?} itself, and the pipeline has a plugin there that cannot read it"
        )),
    }
}

/// The beginning of a digest, as people compare them.
fn short(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex()[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::checkpoint::{NodeKind, PackBuilder, PluginEntry, SegmentRef, SubtaskEntry};
    use crate::model::{Descriptor, Epoch, Generation, NodeName, Scope, SegmentKind, StateKind, TaskId};
    use crate::plugin::OperatorError;

    fn node(image: Option<u32>, segments: Vec<SegmentRef>) -> NodeEntry {
        let plugin =
            PluginEntry { digest: [1; 32], name: "n".into(), version: "1.0.0".into(), state_version: 1, image };
        NodeEntry {
            name: NodeName::new("work"),
            kind: NodeKind::Operator,
            parallelism: 2,
            plugin: Some(plugin),
            subtasks: vec![SubtaskEntry { segments, ..SubtaskEntry::default() }; 2],
            grants: Vec::new(),
            committables: Vec::new(),
        }
    }

    fn segments() -> Vec<SegmentRef> {
        let task = TaskId { node: NodeName::new("work"), subtask: 0 };
        let mut pack = PackBuilder::new(Generation(1), Epoch(1), &task);
        pack.write(Scope::Subtask, SegmentKind::Base, b"state").expect("it is small");
        pack.finish().expect("something was written").segments
    }

    fn code(digest: u8, image: Option<u32>) -> OperatorCode {
        let descriptor = Descriptor {
            name: "n".into(),
            version: "1.0.0".into(),
            summary: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            state: StateKind::Whole,
            state_version: 1,
            oldest_state_version: 1,
            config_schema: None,
        };
        let open = |_| -> futures::future::BoxFuture<'static, Result<Box<dyn crate::plugin::Operator>, OperatorError>> {
            Box::pin(async { Err(OperatorError::Fatal("it is never opened".into())) })
        };
        OperatorCode { descriptor, digest: [digest; 32], image, open: Arc::new(open) }
    }

    #[test]
    fn an_image_fits_only_the_same_component_instrumenter_and_parallelism() {
        for (then, digest, now, parallelism, refused) in [
            (Some(1), 1, Some(1), 2, None),
            (Some(1), 2, Some(1), 2, Some("0101")),
            (Some(1), 2, None, 2, Some("the very component")),
            (Some(1), 1, Some(2), 2, Some("of version 1")),
            (Some(1), 1, Some(1), 3, Some("at parallelism 2, and the pipeline has 3")),
            (Some(1), 1, None, 2, Some("writes its state itself")),
            (None, 1, Some(1), 2, Some("cannot read it")),
            (None, 2, None, 3, None),
        ] {
            let (empty, held) = (node(then, Vec::new()), node(then, segments()));
            let code = code(digest, now);
            assert_eq!(image_fits(&empty, &code, parallelism), Ok(()), "there is no state to fit");
            match (image_fits(&held, &code, parallelism), refused) {
                (Ok(()), None) => {}
                (Err(text), Some(part)) => assert!(text.contains(part) && text.contains("\"work\""), "{text}"),
                (answer, _) => panic!("{then:?} {digest} {now:?} {parallelism}: {answer:?}"),
            }
        }
    }
}
