// StepFailure: what requests hear of a step that has failed.
#pragma once

#include <string>

#include "base/error.h"

namespace tokamak {

// Returns the error of a failed step for the requests in it. The fault is not theirs, whatever code
// the error has where it comes from: kUnavailable stays, because the same request may work later,
// and everything else becomes kInternal.
inline Status StepFailure(const Status& error) {
  if (error.ok() || error.code() == StatusCode::kUnavailable) return error;
  return Internal("{}", error.message());
}

}  // namespace tokamak
