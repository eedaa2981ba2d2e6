package weir

import "github.com/weir-stream/weir/sdk/go/internal/host"

// An Output takes what a call emits and rejects. All of it takes effect when the call returns no error; if it fails or panics, none
// of it does.
type Output struct{ raw host.Batch }

// Emit hands a batch on through an output port. An empty one is dropped.
//
// Emit once for each batch that came in, not once for each record. What a call may emit is limited (64 MiB unless the node's limits
// say otherwise): with more to say, see [Base.InSteps].
//
// Traps if there is no such port, if a column is longer than the contract allows, or if the port is keyed and a record has no key.
func (o *Output) Emit(port uint32, batch *Batch) {
	if batch.Len() > 0 {
		o.raw = batch.raw()
		host.For("Output.Emit").Emit(port, &o.raw)
	}
}

// Reject puts a record of the batch that is being processed aside, with the reason, for people to look at: what happens to it is up
// to the pipeline. Only within Process; elsewhere, and if there is no such record, it traps. A reason is cut at 1,024 bytes.
func (o *Output) Reject(index uint32, reason string) {
	host.For("Output.Reject").Reject(index, reason)
}

// RejectBatch puts records aside that came in an earlier call.
func (o *Output) RejectBatch(batch *Batch, reason string) {
	if batch.Len() > 0 {
		o.raw = batch.raw()
		host.For("Output.RejectBatch").RejectBatch(&o.raw, reason)
	}
}
