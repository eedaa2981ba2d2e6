/* The SDK as one source file: compile it with your operator. */

#include "src/memory.c"
#include "src/hash.c"
#include "src/batch.c"
#include "src/chunk.c"
#include "src/table.c"
#include "src/state.c"
#include "src/map.c"
#include "src/timers.c"
#include "src/value.c"
#include "src/json.c"
#include "src/instance.c"
