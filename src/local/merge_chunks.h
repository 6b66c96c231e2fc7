// Merges the chunks of a choice.
#pragma once

#include "tokamak/request.h"

namespace tokamak {

void MergeChunk(OutputChunk chunk, OutputChunk* whole);

}  // namespace tokamak
