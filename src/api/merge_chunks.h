// A choice's chunks, put together.
#pragma once

#include "tokamak/request.h"

namespace tokamak {

// Appends the next chunk of a choice to the chunks before it.
void MergeChunk(OutputChunk chunk, OutputChunk* whole);

}  // namespace tokamak
