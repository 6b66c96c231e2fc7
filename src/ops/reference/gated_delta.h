// The operations of ops/gated_delta.h in double precision, by their definitions.
#pragma once

#include "ops/gated_delta.h"

namespace tokamak {

void RunReference(const CausalConv& op);
void RunReference(const GatedDelta& op);
void RunReference(const GateOutput& op);

}  // namespace tokamak
