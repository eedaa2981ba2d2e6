/* Compile this with weir.c and your operator for the world `simple-operator`: the host keeps images of its memory, which
 * fit only the same component at the same parallelism. */

#include "../bindings/simple-operator/weir_wit.c"

#include "glue.h"

/* This world has no snapshots: nobody calls these. */

bool weir_host_write(const weir_chunk *chunk)
{
    (void)chunk;
    weir_host_trap();
}

bool weir_host_read(weir_chunk *chunk)
{
    (void)chunk;
    weir_host_trap();
}
