/* Compile this with weir.c and your operator for the world `stateful-operator`: the SDK writes and reads its state. */

#include "../bindings/stateful-operator/weir_wit.c"

#include "glue.h"

bool weir_host_write(const weir_chunk *chunk)
{
    weir_plugin_snapshots_segment_t segment;
    memset(&segment, 0, sizeof segment);
    segment.scope.tag = (uint8_t)chunk->scope;
    segment.scope.val.key_group = chunk->group;
    segment.kind = (weir_plugin_snapshots_segment_kind_t)chunk->kind;
    weir_wit_list_u8_t data = {(uint8_t *)(uintptr_t)chunk->data.data, chunk->data.len};
    return weir_plugin_snapshots_write(&segment, &data);
}

bool weir_host_read(weir_chunk *chunk)
{
    static weir_plugin_snapshots_chunk_t last; /* lent to the reader until the next call */
    weir_plugin_snapshots_chunk_free(&last);
    memset(&last, 0, sizeof last);
    if (!weir_plugin_snapshots_read(&last)) return false;
    chunk->scope = (weir_segment_scope)last.source.scope.tag;
    chunk->group = chunk->scope == WEIR_SCOPE_KEY_GROUP ? last.source.scope.val.key_group : 0;
    chunk->kind = (weir_segment_kind)last.source.kind;
    chunk->data = weir_bytes_of(last.data.ptr, last.data.len);
    return true;
}

bool exports_weir_plugin_checkpoint_snapshot(uint64_t epoch, exports_weir_plugin_checkpoint_snapshot_mode_t mode, weir_plugin_types_progress_t *progress,
                                             weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_snapshot(&instance, epoch, mode == EXPORTS_WEIR_PLUGIN_CHECKPOINT_SNAPSHOT_MODE_FULL), progress, failure);
}

bool exports_weir_plugin_checkpoint_restore(uint32_t state_version, weir_plugin_types_failure_t *failure)
{
    return answer(weir_instance_restore(&instance, state_version), NULL, failure);
}
