// Checks of that in which the ranks of a group must agree.
#pragma once

#include <vector>

#include "step/executor_limits.h"
#include "step/step_output.h"
#include "tokamak/status.h"

namespace tokamak {

// Compares the tokens of two outputs, of which one may be from a stage that does not draw.
bool SameTokens(const StepOutput& a, const StepOutput& b);
// Compares what two ranks drew.
bool SameDraws(const StepOutput& a, const StepOutput& b);

// The limits of the group, whose blocks have their bytes on all ranks. kInternal if the ranks'
// limits differ in more than these bytes.
Result<ExecutorLimits> JoinLimits(const std::vector<ExecutorLimits>& ranks);

}  // namespace tokamak
